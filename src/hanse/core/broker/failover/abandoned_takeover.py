"""Takeovers that were agreed to and never used, because the new owner retired by force in the middle of them.

Every warden refuses the former owner, and the new one never acts. The former owner may act again when

- every warden has said that the new owner has retired and never registered there. A warden does not listen to
  a retired broker, so this stays true; and an owner that no warden has heard of has started, published and
  acknowledged nothing;
- no cluster has retired that may have heard of the new owner: one that was drained when it left shared all
  terms that it knew with another, which would know them now.

A standby of the new owner may have complete copies, and may ask for the shard at the same moment. Each warden
takes who comes first. The standby needs all of them; the former owner registers under a term above the terms
of both, so that one warden that has accepted it keeps the other from ever having all (ADR 0039).
"""

from hanse.core.broker.failover.owned_shards import OwnedShard
from hanse.core.broker.failover.terms import takeover_count
from hanse.core.config import BrokerConfig


def is_owned_by_retired(config: BrokerConfig, owned: OwnedShard) -> bool:
    """True if a warden has a retired broker for the owner of one of our shards."""
    return any(owner in config.retired for owner in owned.disowned_by.values())


def is_takeover_abandoned(config: BrokerConfig, owned: OwnedShard) -> bool:
    """True if our shard was given to a broker that never acted for it, and never will."""
    if not owned.abandoned_at or not is_owned_by_retired(config, owned):
        return False
    return all(name in owned.abandoned_at for name in config.active_clusters) and all(
        name in config.drained for name in config.clusters if name in config.retired
    )


def is_orphaned(config: BrokerConfig, owned: OwnedShard) -> bool:
    """True if nobody will tell us of the jobs of our shard: every warden has another owner for it, and who
    took it over has retired. Either it is still the owner and has registered somewhere, or a cluster that
    vanished may have its registration, or others have taken over from it."""
    if not any(name in config.retired for name in config.brokers):
        return False
    if not all(name in owned.disowned_by for name in config.active_clusters):
        return False
    later = owned.disowned_number - takeover_count(owned.term)
    if not is_owned_by_retired(config, owned):
        return later > 1
    is_agreed = all(name in owned.abandoned_at for name in config.active_clusters)
    return later > 0 or (is_agreed and not is_takeover_abandoned(config, owned))
