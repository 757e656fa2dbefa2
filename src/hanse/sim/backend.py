"""Simulated backend: the tasks of one runner, the records of their ends, and the watchdog beside them.

The backend is part of the world, not of the runner: tasks go on while their runner is down or paused, the
backend remembers ends until the runner may forget them, and the watchdog ends every task when the lease that
the runner last passed on has run out on the runner's clock. The checkers judge by what happens here, not by
what machines believe.

The *output* of the backend may hang, as the output of supervisors does on a frozen disk: then the backend
starts, stops and reports nothing until the output resumes. The watchdog does not depend on the output.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from hanse.model.effects import ExtendWatchdog, ForgetAttempt, KillAttempt, LaunchAttempt
from hanse.model.events import BackendReported
from hanse.model.ids import MILLISECOND, TaskId
from hanse.model.messages import AttemptEnd, Outcome, ResourceUsage, WithheldCapacity
from hanse.model.resources import Resources
from hanse.sim.runner_process import RunnerProcess
from hanse.sim.world import World

NOTICE_MAX = 5 * MILLISECOND
"""Longest delay in microseconds until a runner hears of a start or an exit."""

Fate = tuple[int | None, Outcome, int]
"""Planned end of an attempt: microseconds until then (None: never), outcome and exit code."""


class Attempt:
    """Attempt of a task on a node, from its launch to its end."""

    __slots__ = (
        "attempt",
        "estate",
        "live",
        "moves",
        "node",
        "payload",
        "since",
        "size",
        "stop_at",
        "task",
        "told_at",
    )

    def __init__(self, launch: LaunchAttempt) -> None:
        self.task = launch.task
        self.attempt = launch.attempt
        self.node = launch.node
        self.size = launch.size
        self.estate = launch.shard
        self.moves = launch.is_movable
        self.payload = launch.payload
        self.live = True
        self.since = 0
        """True time at which the attempt began."""
        self.stop_at: int | None = None
        """True time at which a kill takes effect."""
        self.told_at = 0
        """Time at which the runner hears of the start; never after the end."""


class Truth(Protocol):
    """Listener for the real starts and ends of attempts."""

    def launched(self, cluster: str, runner: str, attempt: Attempt) -> None:
        """Handle the real start of an attempt."""
        ...

    def ended(self, cluster: str, attempt: Attempt, outcome: Outcome) -> None:
        """Handle the real end of an attempt."""
        ...


class Backend:
    """Backend of one runner: its nodes and the attempts on them."""

    def __init__(
        self,
        runner: RunnerProcess,
        cluster: str,
        fate: Callable[[LaunchAttempt], Fate],
        truth: Truth,
        rng: Random,
    ) -> None:
        self.runner = runner
        self.world: World = runner.world
        self.cluster = cluster
        self.live: dict[tuple[int, int], Attempt] = {}
        self.ended: dict[tuple[int, int], AttemptEnd] = {}
        """Ends that the runner may not forget yet."""
        self.until: int | None = None
        """Time on the runner's clock at which the watchdog ends every attempt."""
        self._look_at: int | None = None
        """True time of the watchdog's next check."""
        self.withheld: dict[int, Resources] = {}
        """Node -> resources of it that others use."""
        self._held: list[tuple[Callable[[Any], None], Any]] | None = None
        """Actions that wait, in order, while the output hangs; None: the output does not hang."""
        self._asked = False
        """True if the runner has asked for a report that waits for the output."""
        self.notice_max = NOTICE_MAX
        self._fate = fate
        self._truth = truth
        self._rng = rng
        runner.report = self._answer
        runner.connect(
            {
                LaunchAttempt: self.launch,
                KillAttempt: self.kill,
                ExtendWatchdog: self.guard,
                ForgetAttempt: self.forget,
            }
        )

    @property
    def hangs(self) -> bool:
        """True if the output hangs."""
        return self._held is not None

    def hang(self) -> None:
        """Make the output hang from now on."""
        if self._held is None:
            self._held = []

    def move_on(self, _: object = None) -> None:
        """Perform the delayed actions in order and let the output work again."""
        held, self._held = self._held, None
        for action, payload in held or ():
            action(payload)
        if self._asked:
            self._asked = False
            self.runner.learn()

    def launch(self, effect: LaunchAttempt) -> None:
        """Start an attempt."""
        if self._held is not None:
            self._held.append((self._launch_late, effect))
            return
        attempt = Attempt(effect)
        self._truth.launched(self.cluster, self.runner.name, attempt)
        self.live[effect.task, effect.attempt] = attempt
        world = self.world
        attempt.since = world.now
        self._note(attempt, "runs")
        if self.until is not None and self.runner.local_now() >= self.until:
            self._end(attempt, Outcome.LOST, -9, "is ended by the watchdog: the lease has run out")
            return
        attempt.told_at = world.now + self._rng.randint(0, self.notice_max)
        notice = (self.runner.incarnation, effect.task, effect.attempt)
        world.at(attempt.told_at, self._tell, (self.runner.started, notice))
        duration, outcome, code = self._fate(effect)
        if duration is not None:
            world.at(world.now + duration, self._finish, (attempt, outcome, code))

    def _launch_late(self, effect: LaunchAttempt) -> None:
        """Start an attempt that waited for the output, unless the broker no longer expects it."""
        if self.runner.local_now() < effect.until or not effect.until:
            self.launch(effect)
            return
        end = AttemptEnd(effect.task, effect.attempt, Outcome.UNSTARTED)
        self.ended[effect.task, effect.attempt] = end
        self._tell((self.runner.exited, (self.runner.incarnation, end)))

    def kill(self, effect: KillAttempt) -> None:
        """Signal an attempt; it ends within its grace period."""
        if self._held is not None:
            self._held.append((self.kill, effect))
            return
        attempt = self.live.get((effect.task, effect.attempt))
        if attempt is None:
            return
        stop_at = self.world.now + self._rng.randint(effect.grace // 4, effect.grace)
        if attempt.stop_at is None or stop_at < attempt.stop_at:
            attempt.stop_at = stop_at
            self.world.at(stop_at, self._stop, attempt)

    def guard(self, effect: ExtendWatchdog) -> None:
        """Move the watchdog to a later time."""
        before = self.until
        if before is not None and effect.until <= before:
            return
        self.until = effect.until
        if before is not None and self._look_at is not None:
            return  # the planned check comes first and plans the next one
        at = max(self.runner.clock.true(effect.until), self.world.now)
        if self._look_at is None or at < self._look_at:
            self._look_at = at
            self.world.at(at, self._watch, at)

    def forget(self, effect: ForgetAttempt) -> None:
        """Drop the record of an end."""
        self.ended.pop((effect.task, effect.attempt), None)

    def report(self) -> BackendReported:
        """Return all attempts, ends and withheld resources, for a runner that has just started."""
        running = tuple((it.task, it.attempt, it.estate, it.moves) for it in self.live.values())
        withheld = tuple(self.withheld.items())
        return BackendReported(self.runner.local_now(), running, tuple(self.ended.values()), withheld)

    def _answer(self) -> BackendReported | None:
        """Return the report; None while the output hangs: the runner gets it when the output resumes."""
        self._asked = self._held is not None
        return None if self._asked else self.report()

    def withhold(self, room: WithheldCapacity) -> None:
        """Withhold this amount of a node, because others use it, from now on."""
        node, amount = room
        if amount == self.withheld.get(node, Resources()):
            return
        self.withheld[node] = amount
        if amount == Resources():
            del self.withheld[node]
        told_at = self.world.now + self._rng.randint(0, self.notice_max)
        self.world.at(told_at, self._tell_withheld, (self.runner.incarnation, node))

    def _tell_withheld(self, notice: tuple[int, int]) -> None:
        """Report how much of a node is withheld now, however late the report is."""
        incarnation, node = notice
        self.runner.withheld((incarnation, ((node, self.withheld.get(node, Resources())),)))

    def finish(self, task: int, outcome: Outcome, code: int = 0) -> bool:
        """End the live attempt of a task now, as if it had ended on its own; return whether there was one."""
        for attempt in self.live.values():
            if attempt.task == task:
                self._end(attempt, outcome, code, f"ends: {outcome}")
                return True
        return False

    def burn(self, _: object = None) -> None:
        """Lose the host: every task on it and everything that the backend remembers."""
        for attempt in list(self.live.values()):
            self._over(attempt, Outcome.LOST, "is lost with its host")
        self.ended.clear()
        self.until = None
        self._held, self._asked = None, False
        self.runner.crash()

    def _finish(self, end: tuple[Attempt, Outcome, int]) -> None:
        attempt, outcome, code = end
        if attempt.live:
            self._end(attempt, outcome, code, f"ends: {outcome}")

    def _stop(self, attempt: Attempt) -> None:
        if self._held is not None:
            self._held.append((self._stop, attempt))
        elif attempt.live and attempt.stop_at is not None and attempt.stop_at <= self.world.now:
            self._end(attempt, Outcome.CANCELLED, -15, "is stopped")

    def _watch(self, look_at: int) -> None:
        """Check the clock for the watchdog. One check serves many renewals: each beat brings a renewal."""
        if look_at != self._look_at:
            return  # an earlier check has replaced this one
        self._look_at = None
        if self.until is None:
            return
        at = self.runner.clock.true(self.until)
        if at > self.world.now:
            self._look_at = at
            self.world.at(at, self._watch, at)
            return
        for attempt in list(self.live.values()):
            self._end(attempt, Outcome.LOST, -9, "is ended by the watchdog: the lease has run out")

    def _end(self, attempt: Attempt, outcome: Outcome, code: int, why: str) -> None:
        self._over(attempt, outcome, why)
        usage = ResourceUsage(run_time=self.world.now - attempt.since)
        end = AttemptEnd(TaskId(attempt.task), attempt.attempt, outcome, code, usage)
        self.ended[attempt.task, attempt.attempt] = end
        told_at = max(attempt.told_at, self.world.now) + self._rng.randint(0, self.notice_max)
        self.world.at(told_at, self._tell, (self.runner.exited, (self.runner.incarnation, end)))

    def _tell(self, news: tuple[Callable[[Any], None], Any]) -> None:
        """Pass a start or an end to the runner."""
        if self._held is not None:
            self._held.append(news)
        else:
            news[0](news[1])

    def _over(self, attempt: Attempt, outcome: Outcome, why: str) -> None:
        attempt.live = False
        del self.live[attempt.task, attempt.attempt]
        self._note(attempt, why)
        self._truth.ended(self.cluster, attempt, outcome)

    def _note(self, attempt: Attempt, what: str) -> None:
        if self.world.story is not None:
            where = f"{self.cluster} node {attempt.node}"
            self.world.story.lived(self.world.now, where, attempt.task, attempt.attempt, what)


FOREVER: Fate = (None, Outcome.SUCCEEDED, 0)
"""Planned end of a task that the caller ends."""
