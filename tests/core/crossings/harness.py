"""A wired league whose messages can be kept back, and whose machines can die.

A test reads as a story: ``copy = league.keep(ReplicateJobs, "b1", "b2")``, ``league.dies("b1")``,
``league.run(20 * SECOND)``, ``copy.arrives()``. While messages are kept all their repetitions are kept as
well, so that what arrives late really is late. A machine that returns is made anew from the journal of its
own events; a runner has none and asks its backend. The watchdog beside the tasks is there too: when a
runner's lease is over, everything that it runs is ended.

What must hold in every story is watched all the time:

- a task never has two live attempts, and no node runs more than it has (``Wired``);
- no attempt is launched twice, and nothing is launched of a task whose end was made known;
- what is made known of a task or a job is never taken back;
- a success that is made known is one that its backend has seen, by that very attempt.

``rest`` ends a story: everybody returns, everything kept arrives, what runs succeeds, and then every
acknowledged job must have ended and nothing may be left over anywhere.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from types import UnionType

from hanse.core.config import NodeConfig, Timings
from hanse.model.effects import (
    Effect,
    ExtendWatchdog,
    JobAccepted,
    JobSettled,
    LaunchAttempt,
    RequestRejected,
    TaskSettled,
)
from hanse.model.events import Event, MessageReceived, Tick
from hanse.model.ids import SECOND, JobId, TaskId, task_id
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, Envelope, Outcome, ResourceUsage
from tests.core.wired import USUAL, Wired, node

THREE = ("b1", "b2", "b3")
ROUNDS_MAX = 12
"""How often a story that ends lets all that runs succeed."""


class Kept:
    """Messages that are kept back: which ones, and those that were caught so far."""

    def __init__(self, league: "Crossings", takes: Callable[[Envelope], bool]) -> None:
        self._league = league
        self.takes = takes
        self.envelopes: list[Envelope] = []

    def __len__(self) -> int:
        return len(self.envelopes)

    def arrives(self, times: int = 1, backwards: bool = False) -> None:
        """Let go: what was kept arrives now, in the order of its sending or the other way round."""
        self._release()
        for envelope in reversed(self.envelopes) if backwards else self.envelopes:
            for _ in range(times):
                self._league.hand_over(envelope)
        self.envelopes.clear()
        self._league.deliver()

    def is_lost(self) -> None:
        """What was kept never arrives; what is sent from now on does."""
        self._release()
        self.envelopes.clear()

    def _release(self) -> None:
        if self in self._league.keeping:
            self._league.keeping.remove(self)


class Crossings(Wired):
    """A league of stories. Two clusters of one node each, unless said otherwise."""

    def __init__(
        self, brokers: tuple[str, ...] = ("b1", "b2"),
        clusters: dict[str, tuple[NodeConfig, ...]] | None = None, timings: Timings = USUAL,
    ) -> None:  # fmt: skip
        self.keeping: list[Kept] = []
        self.journals: dict[str, list[Event]] = {}
        self.guarded: dict[str, int] = {}
        """Runner -> when its watchdog ends everything."""
        self.launched: list[tuple[TaskId, int]] = []
        """Every attempt that was ever started."""
        self.seen: dict[tuple[TaskId, int], AttemptEnd] = {}
        """How attempts ended, as their backends have seen it."""
        self.acknowledged: dict[JobId, JobSpec] = {}
        self.specs: dict[int, JobSpec] = {}
        super().__init__(clusters or {"c1": (node(),), "c2": (node(),)}, brokers, timings)

    # --- messages -----------------------------------------------------------------------------------------

    def keep(self, kind: type | UnionType = object, source: str = "", target: str = "") -> Kept:
        """From now on keep back the messages of a kind from one machine to another ("": any)."""
        return self.keep_if(
            lambda one: (
                isinstance(one.body, kind) and source in ("", one.source) and target in ("", one.target)
            )
        )

    def cut(self, one: str, *others: str) -> Kept:
        """From now on keep back everything between a machine and these others, both ways."""
        return self.keep_if(
            lambda it: (
                (it.source == one and it.target in others) or (it.target == one and it.source in others)
            )
        )

    def keep_if(self, takes: Callable[[Envelope], bool]) -> Kept:
        """From now on keep back these messages."""
        kept = Kept(self, takes)
        self.keeping.append(kept)
        return kept

    def hand_over(self, envelope: Envelope) -> None:
        """Let a message arrive, unless it is kept."""
        for kept in self.keeping:
            if kept.takes(envelope):
                kept.envelopes.append(envelope)
                return
        super().hand_over(envelope)

    def repeat(self, kind: type, source: str, target: str) -> None:
        """The network delivers the last message of a kind once more, as it was sent."""
        for event in reversed(self.journals[target]):
            if not isinstance(event, MessageReceived) or event.envelope.source != source:
                continue
            if isinstance(event.envelope.body, kind):
                self.hand_over(event.envelope)
                self.deliver()
                return
        raise AssertionError(f"{target} never had a {kind.__name__} of {source}")

    # --- machines -----------------------------------------------------------------------------------------

    def dies(self, *names: str, unsaid: bool = False) -> None:
        """Machines die; ``unsaid``: before what they last wanted to say was sent."""
        for name in names:
            self.deaf[name] = True
            if unsaid:
                self.mail = type(self.mail)(one for one in self.mail if one.source != name)

    def returns(self, *names: str) -> None:
        """Machines come back from their journals, which must give them the state that they had."""
        for name in names:
            fresh = self.makers[name]()
            if name not in self.cluster_of:
                for event in self.journals[name]:
                    fresh.handle(event)
                state = self.machines[name].dump()
                assert fresh.dump() == state, f"{name}'s journal gives another state"
                fresh.restore(state)
                assert fresh.dump() == state, f"{name}'s dump is not whole"
            self.machines[name] = fresh
            self.boot(name)
        self.deliver()

    def give(self, name: str, event: Event) -> list[Effect]:
        """Journal an event, then hand it to its machine."""
        self.journals.setdefault(name, []).append(event)
        return super().give(name, event)

    def run(self, duration: int) -> None:
        """Let time pass: ticks and the ends of leases, each at its time, and all that they set off."""
        until = self.now + duration
        self.deliver()
        while self.wakes and self.wakes[0][0] <= until:
            at, name = heappop(self.wakes)
            self.now = max(self.now, at)
            self._watch()
            if name not in self.deaf:
                self.give(name, Tick(self.now))
            self.deliver()
        self.now = until

    def _watch(self) -> None:
        """Every watchdog looks at the clock."""
        for runner, until in self.guarded.items():
            if self.now >= until:
                for task, attempt in [key for key in self.live if self.runner_of[key] == runner]:
                    self.exit(task, attempt, Outcome.LOST, -9)

    # --- what is watched ----------------------------------------------------------------------------------

    def _perform(self, name: str, command: Effect) -> None:
        if isinstance(command, ExtendWatchdog):
            self.guarded[name] = max(command.until, self.guarded.get(name, 0))
            heappush(self.wakes, (self.guarded[name], name))
        elif isinstance(command, TaskSettled) and command.outcome is Outcome.SUCCEEDED:
            end = self.seen.get((command.task, command.attempt))
            assert end is not None, "a success that nobody has seen is made known"
            assert end.outcome is Outcome.SUCCEEDED, (
                f"an attempt that ended {end.outcome} counts as a success"
            )
        elif isinstance(command, JobSettled):
            known = self.over.get(command.job, command.outcome)
            assert known is command.outcome, (
                f"a job that ended {known} is said to have ended {command.outcome}"
            )
        elif isinstance(command, JobAccepted | RequestRejected):
            known_reply = self.replies.get(command.request, command)
            assert type(known_reply) is type(command), "a request has two answers"
            if isinstance(command, JobAccepted) and command.request in self.specs:
                self.acknowledged[command.job] = self.specs[command.request]
        super()._perform(name, command)

    def _launch(self, runner: str, launch: LaunchAttempt) -> None:
        key = (launch.task, launch.attempt)
        assert key not in self.runner_of, "an attempt is launched twice"
        assert launch.task not in self.settled, "a task runs after its end was made known"
        self.launched.append(key)
        super()._launch(runner, launch)

    def exit(
        self, task: TaskId, attempt: int, outcome: Outcome = Outcome.SUCCEEDED, code: int = 0,
        usage: ResourceUsage | None = None,
    ) -> None:  # fmt: skip
        """An attempt ends on its node."""
        if (task, attempt) in self.live:
            self.seen[task, attempt] = AttemptEnd(task, attempt, outcome, code, usage)
        super().exit(task, attempt, outcome, code, usage)

    # --- what people do and see -----------------------------------------------------------------------------

    def hand_in(self, spec: JobSpec, broker: str = "b1") -> int:
        """Submit without waiting; the number of the request."""
        self.specs[self.requests + 1] = spec
        return super().hand_in(spec, broker)

    def attempts(self, number: JobId, index: int = 0) -> list[int]:
        """The attempts of a task that were ever started, in order."""
        return [attempt for task, attempt in self.launched if task == task_id(number, index)]

    def owners(self, number: JobId) -> list[str]:
        """The living brokers that take a job for theirs."""
        return [
            name
            for name, machine in self.machines.items()
            if name not in self.deaf and hasattr(machine, "is_owner_of") and machine.is_owner_of(number)
        ]

    def rest(self) -> None:
        """The story ends: everybody is there, everything arrives, what runs succeeds. Nothing is left."""
        for kept in list(self.keeping):
            kept.arrives()
        self.returns(*self.deaf)
        for _ in range(ROUNDS_MAX):
            self.run(40 * SECOND)
            for task, attempt in list(self.live):
                self.exit(task, attempt)
        self.run(60 * SECOND)
        for number, spec in self.acknowledged.items():
            assert number in self.over, "an acknowledged job has not ended"
            for index in range(spec.task_count):
                assert task_id(number, index) in self.settled, "an end of a task was never made known"
        self.check_idle()
