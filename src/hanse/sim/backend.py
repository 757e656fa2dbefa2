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
from hanse.sim.world import VirtualWorld

NOTICE_MAX = 5 * MILLISECOND
"""Longest delay in microseconds until a start or an end can be noticed."""

PlannedEnd = tuple[int | None, Outcome, int]
"""Planned end of an attempt: microseconds until then (None: never), outcome and exit code."""


class SimulatedAttempt:
    """Attempt of a task on a node, from its launch to its end."""

    __slots__ = (
        "attempt",
        "began_at",
        "is_movable",
        "live",
        "node",
        "payload",
        "place",
        "shard",
        "size",
        "start_noticed_at",
        "stop_at",
        "task",
    )

    def __init__(self, launch: LaunchAttempt) -> None:
        self.task = launch.task
        self.attempt = launch.attempt
        self.node = launch.node
        self.size = launch.size
        self.shard = launch.shard
        self.is_movable = launch.is_movable
        self.payload = launch.payload
        self.place = launch.place
        self.live = True
        self.began_at = 0
        """True time at which the attempt began."""
        self.stop_at: int | None = None
        """True time at which a kill takes effect."""
        self.start_noticed_at = 0
        """Time at which the start can be noticed; never after the end."""


class AttemptObserver(Protocol):
    """Listener for the real starts and ends of attempts."""

    def on_launched(self, cluster: str, runner: str, attempt: SimulatedAttempt) -> None:
        """Handle the real start of an attempt."""
        ...

    def on_ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """Handle the real end of an attempt."""
        ...


class SimulatedBackend:
    """Backend of one runner: its nodes and the attempts on them."""

    def __init__(
        self,
        runner: RunnerProcess,
        cluster: str,
        planned_end: Callable[[LaunchAttempt], PlannedEnd],
        observer: AttemptObserver,
        rng: Random,
        poll_interval: int = 0,
    ) -> None:
        self.runner = runner
        self.world: VirtualWorld = runner.world
        self.cluster = cluster
        self.live_attempts: dict[tuple[int, int], SimulatedAttempt] = {}
        self.ends: dict[tuple[int, int], AttemptEnd] = {}
        """Ends that the runner may not forget yet."""
        self.watchdog_until: int | None = None
        """Time on the runner's clock at which the watchdog ends every attempt."""
        self._check_at: int | None = None
        """True time of the watchdog's next check."""
        self.withheld: dict[int, Resources] = {}
        """Node -> resources of it that others use."""
        self._delayed_actions: list[tuple[Callable[[Any], None], Any]] | None = None
        """Actions that wait, in order, while the output hangs; None: the output does not hang."""
        self._is_report_due = False
        """True if the runner has asked for a report that waits for the output."""
        self.notice_max = NOTICE_MAX
        self._poll_interval = poll_interval
        """Microseconds between two looks at what has started and ended; 0: the backend is told."""
        self._planned_end = planned_end
        self._observer = observer
        self._rng = rng
        runner.backend_report = self._report_unless_hanging
        runner.set_performers(
            {
                LaunchAttempt: self.launch,
                KillAttempt: self.kill,
                ExtendWatchdog: self.extend_watchdog,
                ForgetAttempt: self.forget,
            }
        )

    @property
    def is_output_hanging(self) -> bool:
        """True if the output hangs."""
        return self._delayed_actions is not None

    def hang_output(self) -> None:
        """Make the output hang from now on."""
        if self._delayed_actions is None:
            self._delayed_actions = []

    def resume_output(self, _: object = None) -> None:
        """Perform the delayed actions in order and let the output work again."""
        delayed, self._delayed_actions = self._delayed_actions, None
        for action, payload in delayed or ():
            action(payload)
        if self._is_report_due:
            self._is_report_due = False
            self.runner.read_backend_report()

    def launch(self, effect: LaunchAttempt) -> None:
        """Start an attempt."""
        if self._delayed_actions is not None:
            self._delayed_actions.append((self._launch_delayed, effect))
            return
        attempt = SimulatedAttempt(effect)
        self._observer.on_launched(self.cluster, self.runner.name, attempt)
        self.live_attempts[effect.task, effect.attempt] = attempt
        world = self.world
        attempt.began_at = world.now
        self._add_to_story(attempt, "runs")
        if self.watchdog_until is not None and self.runner.local_now() >= self.watchdog_until:
            self._end(attempt, Outcome.LOST, -9, "is ended by the watchdog: the lease has run out")
            return
        attempt.start_noticed_at = world.now + self._rng.randint(0, self.notice_max)
        notice = (self.runner.incarnation, effect.task, effect.attempt)
        report_at = self._next_look(attempt.start_noticed_at)
        world.call_at(report_at, self._notify_runner, (self.runner.on_started, notice))
        duration, outcome, code = self._planned_end(effect)
        if duration is not None:
            world.call_at(world.now + duration, self._on_planned_end, (attempt, outcome, code))

    def _launch_delayed(self, effect: LaunchAttempt) -> None:
        """Start an attempt that waited for the output, unless the broker no longer expects it."""
        if self.runner.local_now() < effect.until or not effect.until:
            self.launch(effect)
            return
        end = AttemptEnd(effect.task, effect.attempt, Outcome.UNSTARTED)
        self.ends[effect.task, effect.attempt] = end
        self._notify_runner((self.runner.on_ended, (self.runner.incarnation, end)))

    def kill(self, effect: KillAttempt) -> None:
        """Signal an attempt; it ends within its grace period."""
        if self._delayed_actions is not None:
            self._delayed_actions.append((self.kill, effect))
            return
        attempt = self.live_attempts.get((effect.task, effect.attempt))
        if attempt is None:
            return
        stop_at = self.world.now + self._rng.randint(effect.grace // 4, effect.grace)
        if attempt.stop_at is None or stop_at < attempt.stop_at:
            attempt.stop_at = stop_at
            self.world.call_at(stop_at, self._on_stop, attempt)

    def extend_watchdog(self, effect: ExtendWatchdog) -> None:
        """Move the watchdog to a later time."""
        previous = self.watchdog_until
        if previous is not None and effect.until <= previous:
            return
        self.watchdog_until = effect.until
        if previous is not None and self._check_at is not None:
            return  # the planned check comes first and plans the next one
        at = max(self.runner.clock.true_time(effect.until), self.world.now)
        if self._check_at is None or at < self._check_at:
            self._check_at = at
            self.world.call_at(at, self._check_watchdog, at)

    def forget(self, effect: ForgetAttempt) -> None:
        """Drop the record of an end."""
        self.ends.pop((effect.task, effect.attempt), None)

    def report(self) -> BackendReported:
        """Return all attempts, ends and withheld resources, for a runner that has just started."""
        running = tuple((it.task, it.attempt, it.shard, it.is_movable) for it in self.live_attempts.values())
        withheld = tuple(self.withheld.items())
        return BackendReported(self.runner.local_now(), running, tuple(self.ends.values()), withheld)

    def _report_unless_hanging(self) -> BackendReported | None:
        """Return the report; None while the output hangs: the runner gets it when the output resumes."""
        self._is_report_due = self._delayed_actions is not None
        return None if self._is_report_due else self.report()

    def withhold(self, withheld: WithheldCapacity) -> None:
        """Withhold this amount of a node, because others use it, from now on."""
        node, amount = withheld
        if amount == self.withheld.get(node, Resources()):
            return
        self.withheld[node] = amount
        if amount == Resources():
            del self.withheld[node]
        report_at = self.world.now + self._rng.randint(0, self.notice_max)
        self.world.call_at(report_at, self._report_withheld, (self.runner.incarnation, node))

    def _report_withheld(self, notice: tuple[int, int]) -> None:
        """Report how much of a node is withheld now, however late the report is."""
        incarnation, node = notice
        self.runner.on_withheld((incarnation, ((node, self.withheld.get(node, Resources())),)))

    def finish(self, task: int, outcome: Outcome, code: int = 0) -> bool:
        """End the live attempt of a task now, as if it had ended on its own; return whether there was one."""
        for attempt in self.live_attempts.values():
            if attempt.task == task:
                self._end(attempt, outcome, code, f"ends: {outcome}")
                return True
        return False

    def lose_host(self, _: object = None) -> None:
        """Lose the host: every task on it and everything that the backend remembers."""
        for attempt in list(self.live_attempts.values()):
            self._remove(attempt, Outcome.LOST, "is lost with its host")
        self.ends.clear()
        self.watchdog_until = None
        self._delayed_actions, self._is_report_due = None, False
        self.runner.crash()

    def _on_planned_end(self, end: tuple[SimulatedAttempt, Outcome, int]) -> None:
        attempt, outcome, code = end
        if attempt.live:
            self._end(attempt, outcome, code, f"ends: {outcome}")

    def _on_stop(self, attempt: SimulatedAttempt) -> None:
        if self._delayed_actions is not None:
            self._delayed_actions.append((self._on_stop, attempt))
        elif attempt.live and attempt.stop_at is not None and attempt.stop_at <= self.world.now:
            self._end(attempt, Outcome.CANCELLED, -15, "is stopped")

    def _check_watchdog(self, check_at: int) -> None:
        """Check the clock for the watchdog. One check serves many renewals: each beat brings a renewal."""
        if check_at != self._check_at:
            return  # an earlier check has replaced this one
        self._check_at = None
        if self.watchdog_until is None:
            return
        at = self.runner.clock.true_time(self.watchdog_until)
        if at > self.world.now:
            self._check_at = at
            self.world.call_at(at, self._check_watchdog, at)
            return
        for attempt in list(self.live_attempts.values()):
            self._end(attempt, Outcome.LOST, -9, "is ended by the watchdog: the lease has run out")

    def _end(self, attempt: SimulatedAttempt, outcome: Outcome, code: int, why: str) -> None:
        self._remove(attempt, outcome, why)
        usage = ResourceUsage(run_time=self.world.now - attempt.began_at)
        end = AttemptEnd(TaskId(attempt.task), attempt.attempt, outcome, code, usage)
        self.ends[attempt.task, attempt.attempt] = end
        noticed_at = max(attempt.start_noticed_at, self.world.now) + self._rng.randint(0, self.notice_max)
        notice = (self.runner.on_ended, (self.runner.incarnation, end))
        self.world.call_at(self._next_look(noticed_at), self._notify_runner, notice)

    def _next_look(self, at: int) -> int:
        """Return the time at which the backend sees what can be noticed since this time."""
        interval = self._poll_interval
        return -(-at // interval) * interval if interval else at

    def _notify_runner(self, notice: tuple[Callable[[Any], None], Any]) -> None:
        """Pass a start or an end to the runner."""
        if self._delayed_actions is not None:
            self._delayed_actions.append(notice)
        else:
            notice[0](notice[1])

    def _remove(self, attempt: SimulatedAttempt, outcome: Outcome, why: str) -> None:
        attempt.live = False
        del self.live_attempts[attempt.task, attempt.attempt]
        self._add_to_story(attempt, why)
        self._observer.on_ended(self.cluster, attempt, outcome)

    def _add_to_story(self, attempt: SimulatedAttempt, what: str) -> None:
        if self.world.story is not None:
            where = f"{self.cluster} node {attempt.node}"
            self.world.story.on_attempt(self.world.now, where, attempt.task, attempt.attempt, what)


NEVER_ENDS: PlannedEnd = (None, Outcome.SUCCEEDED, 0)
"""Planned end of a task that the caller ends."""
