"""Who speaks for a job: whoever asks a broker about a job that is not its own is pointed to another one.

What a broker knows of other brokers' jobs may be old, so two of them may each take the other for the owner.
Whoever is pointed on therefore says whom it has asked, and nobody points back: the way ends after as many
steps as there are brokers, at the one that owns the job or remembers its end, or at one that knows no more.
"""

from collections.abc import Collection

from hanse.core.broker.context import Desk
from hanse.core.broker.failover.owned_shards import EstatesState
from hanse.core.broker.failover.standby import Wards
from hanse.core.broker.job_lifecycle import Careers
from hanse.model.ids import JobId, broker_number


def find_speaker(
    job: JobId, asked: Collection[str], desk: Desk, careers: Careers, state: EstatesState, wards: Wards
) -> str:
    """The broker that speaks for a job, as far as is known here: ours if it is our own or we remember its
    end, else one that lives and was not ``asked``; "" if there is none."""
    config = desk.config
    if job in desk.jobs or job in careers.ended:
        return config.name
    number = broker_number(job)
    first = config.brokers[number - 1] if 0 < number <= len(config.brokers) else ""
    others = desk.members.ring if config.retired else ()  # who knew may have left: one after the other
    for name in (state.takers.get(job, ""), wards.owner_of(job), first, *others):
        if name and name != config.name and name not in asked and desk.members.alive(name):
            return name
    return ""
