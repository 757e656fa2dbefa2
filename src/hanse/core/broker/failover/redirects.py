"""Redirection of requests about jobs that another broker owns.

A broker's knowledge of other brokers' jobs may be old, so two may each take the other for the owner. A client
therefore names the brokers it has asked, and no broker redirects back. The search ends after at most as many
steps as there are brokers: at the owner, at one that remembers the end, or at one that knows no other.
"""

from collections.abc import Collection

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.owned_shards import OwnedShardsState
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.model.ids import JobId, broker_number


def find_answering_broker(
    job: JobId,
    asked: Collection[str],
    context: BrokerContext,
    lifecycle: JobLifecycle,
    state: OwnedShardsState,
    standby_shards: StandbyShards,
) -> str:
    """Return the broker that answers for a job, as far as is known here: this one if the job is its own or it
    remembers the end, else a living one that was not ``asked``; "" if there is none."""
    config = context.config
    if job in context.jobs or job in lifecycle.dependencies.ended_jobs:
        return config.name
    number = broker_number(job)
    first = config.brokers[number - 1] if 0 < number <= len(config.brokers) else ""
    others = context.gossip.ring if config.retired else ()  # the one that knew may have left
    for name in (state.new_owners.get(job, ""), standby_shards.find_owner(job), first, *others):
        if name and name != config.name and name not in asked and context.gossip.is_alive(name):
            return name
    return ""
