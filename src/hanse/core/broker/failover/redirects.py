"""Who speaks for a job: whoever asks a broker about a job that is not its own is pointed to another one.

What a broker knows of other brokers' jobs may be old, so two of them may each take the other for the owner.
Whoever is pointed on therefore says whom it has asked, and nobody points back: the way ends after as many
steps as there are brokers, at the one that owns the job or remembers its end, or at one that knows no more.
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
    """The broker that speaks for a job, as far as is known here: ours if it is our own or we remember its
    end, else one that lives and was not ``asked``; "" if there is none."""
    config = context.config
    if job in context.jobs or job in lifecycle.ended_jobs:
        return config.name
    number = broker_number(job)
    first = config.brokers[number - 1] if 0 < number <= len(config.brokers) else ""
    others = context.membership.ring if config.retired else ()  # who knew may have left: one after the other
    for name in (state.new_owners.get(job, ""), standby_shards.find_owner(job), first, *others):
        if name and name != config.name and name not in asked and context.membership.is_alive(name):
            return name
    return ""
