"""Changes of members in a story: newer versions of the league file, and brokers that are retired by force."""

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.machine import Machine
from hanse.core.warden.warden import Warden
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import Outcome
from hanse.registry import NODE_RANKERS, make_policies
from tests.core.crossings.harness import Crossings
from tests.core.wired import Wired

CLUSTERS = ("c1", "c2")


def learn(league: Wired, *names: str, **changes: object) -> None:
    """Members start again with a newer version of the league file."""
    for name in names:
        machine = league.machines[name]
        config = msgspec.structs.replace(machine.config, **changes)  # type: ignore[attr-defined]

        def make(config: object = config, is_broker: bool = isinstance(machine, Broker)) -> Machine:
            if is_broker:
                return Broker(config, *make_policies("fifo", "best-fit", "rotate", "least"))  # type: ignore[arg-type]
            return Warden(config, NODE_RANKERS.get("first")())  # type: ignore[arg-type]

        league.makers[name] = make
        league.restart(name)
        if isinstance(league, Crossings):
            league.journals[name] = []


def retires(league: Crossings, name: str, *others: str) -> None:
    """A dead broker is retired by force, and everybody else hears of it."""
    for each in others:
        learn(league, each, retired=(name,))


def succeed(league: Crossings, *jobs: JobId) -> None:
    """Whatever of these jobs runs succeeds, until they are over."""
    for _ in range(4):
        league.run(20 * SECOND)
        for task, attempt in list(league.live):
            league.exit(task, attempt)
    league.run(5 * SECOND)
    assert [league.over.get(number) for number in jobs] == [Outcome.SUCCEEDED] * len(jobs)
