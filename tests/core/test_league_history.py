"""A whole small league under random histories: every promise at every step, and everything over in the end.

The simulator tries harder (losses, partitions, clocks, torn journals); this one is for short counterexamples.
"""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hanse.model.effects import JobAccepted
from hanse.model.ids import MILLISECOND, SECOND, JobId
from hanse.model.job import Affinity, JobSpec
from hanse.model.messages import Outcome
from tests.core.wired import Wired, job, node, tasks

CLUSTERS = {
    "c1": (node(2_000, "r1"), node(2_000, "r1"), node(4_000, "r2")),
    "c2": (node(3_000, "r1"),),
}
BROKERS = ("b1", "b2")
MACHINES = (*BROKERS, *CLUSTERS, "c1.r1", "c1.r2", "c2.r1")
ROUNDS_MAX = 60
"""Ends and waits after which a league with nothing but good news must have finished."""

specs = st.builds(
    lambda count, cpu, gang, retries, apart: job(
        tasks(min(count, 2) if gang else count, cpu, affinity=(Affinity("x", apart=True),) if apart else ()),
        gang=gang,
        retries=retries,
        labels=("x",) if apart else (),
    ),
    st.integers(1, 5),
    st.sampled_from((500, 1_000, 2_000)),
    st.booleans(),
    st.integers(0, 1),
    st.booleans(),
)


class LeagueHistory(RuleBasedStateMachine):
    """Two brokers, two clusters, three runners."""

    def __init__(self) -> None:
        super().__init__()
        self.league = Wired(CLUSTERS, BROKERS, order="fewest-remaining", placer="spread")
        self.requests: list[int] = []

    def jobs(self) -> list[JobId]:
        replies = [self.league.replies.get(request) for request in self.requests]
        return [reply.job for reply in replies if isinstance(reply, JobAccepted)]

    @rule(spec=specs, broker=st.sampled_from(BROKERS))
    def submit(self, spec: JobSpec, broker: str) -> None:
        self.requests.append(self.league.hand_in(spec, broker))

    @precondition(lambda self: self.league.live)
    @rule(
        data=st.data(),
        outcome=st.sampled_from((Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.LOST)),
    )
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        task, attempt = data.draw(st.sampled_from(sorted(self.league.live)))
        self.league.exit(task, attempt, outcome, 1)

    @precondition(lambda self: self.jobs())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.jobs()))
        self.league.cancel(number, BROKERS[(number >> 32) - 1])

    @rule(at=st.integers(0, 2), closed=st.booleans())
    def drain(self, at: int, closed: bool) -> None:
        self.league.drain("c1", at, closed=closed)

    @rule(name=st.sampled_from(MACHINES))
    def restart(self, name: str) -> None:
        self.league.restart(name)

    @rule(steps=st.integers(1, 10))
    def deliver_some(self, steps: int) -> None:
        for _ in range(min(steps, len(self.league.mail))):
            self.league.step()

    @rule(duration=st.sampled_from((10 * MILLISECOND, 300 * MILLISECOND, 2 * SECOND)))
    def pass_time(self, duration: int) -> None:
        self.league.run(duration)

    @rule(seed=st.none() | st.integers(0, 1_000))
    def change_the_network(self, seed: int | None) -> None:
        self.league.unruly = None if seed is None else Random(seed)

    @invariant()
    def promises(self) -> None:
        self.league.check()

    def teardown(self) -> None:
        """Good news only: everything acknowledged ends, and nothing is left over."""
        league = self.league
        league.unruly = None
        league.drain("c1", closed=False)
        for _ in range(ROUNDS_MAX):
            league.run(5 * SECOND)
            if all(number in league.over for number in self.jobs()):
                break
            for task, attempt in list(league.live):
                league.exit(task, attempt)
        assert len(league.replies) == league.requests, "not everybody was answered"
        assert [number for number in self.jobs() if number not in league.over] == []
        league.run(120 * SECOND)
        league.check_idle()


LeagueHistory.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_league_history = LeagueHistory.TestCase
