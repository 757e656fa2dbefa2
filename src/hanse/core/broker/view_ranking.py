"""Clusters in which a broker may claim room, and the order of its search by standing and data."""

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.placement_reasons import STANDING_LEAST
from hanse.policy.hashing import hash_numbers
from hanse.policy.interface import ClusterFacts


def rank_views(context: BrokerContext, record: JobRecord, views: list[ClusterView]) -> list[ClusterView]:
    """Order the clusters for the search: those in good standing first."""
    if len(views) < 2:
        return views
    data = record.spec.data
    facts = [
        ClusterFacts(v.name, v.state.standing, data.index(v.name) if v.name in data else -1) for v in views
    ]
    order = context.rank.rank(facts, hash_numbers(context.seed, context.steps, record.id) % len(views))
    order.sort(key=lambda i: views[i].state.standing < STANDING_LEAST)
    return [views[i] for i in order]


def takes_claims(view: ClusterView, shard: str, now: int) -> bool:
    """True if the warden of a cluster would accept a claim for a shard, as far as is known."""
    state = view.state
    known = state.rounds.get(shard, 0)
    return (
        view.is_open
        and known > 0
        and state.snapshot is not None
        and known >= state.least_round.get(shard, 0)
        and not state.given_up
        and now >= state.closed_until
    )
