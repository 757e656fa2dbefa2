"""Environment: E episodes of N clusters, stepped together.

One *sub-step* is one round of simultaneous choices in one episode. In multi-task mode time stands still while
any cluster starts a task; in single-task mode it advances after every round. The order inside a step of time:
rewards, progress (of every running task), completions, failures, clock, arrivals, refill of the pending
slots.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env import conflict_rules
from hanse.learning.edge.env.columns import Columns, empty_columns
from hanse.learning.edge.env.evictions import apply_failures, evict_tasks
from hanse.learning.edge.env.keyed_random import derive_key, uniform
from hanse.learning.edge.env.policy_interface import NO_DEADLINE, NONE, Choice, EdgeView, Flags, Floats, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.speeds import CONVERGENCE, durations
from hanse.learning.edge.env.streams import Streams
from hanse.learning.edge.env.visible_tasks import PendingSlots

ROUNDING: Final = 1e-9
"""Distance below 1 at which a progress counts as done in the corrected mode."""

_NOISE, _TIE = np.int64(1), np.int64(2)
"""Keys of draws; 3 is that of failures (``evictions``)."""

Allocator = Callable[["EdgeWorld"], tuple[Ints, Ints]]
"""Second half of a preemptive policy: CPUs and GPUs of every running slot, each (E, N, R)."""


class StepResult(msgspec.Struct, frozen=True, eq=False):
    """Result of one sub-step."""

    reward: Floats
    """(E, N) minus the tasks at each cluster, where time advanced; else 0."""
    moved: Flags
    """(E,) True where time advanced."""
    started: Flags
    """(E, N) clusters whose choice took effect."""
    conflicts: Flags
    """(E, N) clusters that lost the task they chose to another."""


class EdgeWorld:
    """State of E episodes and its transition. Finished episodes stand still until dropped."""

    def __init__(self, setting: Setting, streams: Streams) -> None:
        """Begin all episodes at time 0, with the arrivals of time 0 in place."""
        self.setting = setting
        self.streams = streams
        self.capacity = np.array(setting.capacity, dtype=np.int64)
        self.minimum = setting.speed_table.minimum
        self.limit = np.array(setting.speed_table.limit, dtype=np.int64)
        slots = int((self.capacity[:, None, :] // self.minimum[None, :, :]).min(axis=2).max())
        self.state: Columns = empty_columns(setting, len(streams.seed), slots)
        self.state.free[:] = self.capacity
        variants = setting.variants
        scale = variants.speed_scale or (1.0,) * setting.clusters
        self._scale = np.array(scale)
        best = durations(setting.speed_table, ROUNDING).min(axis=(1, 2))
        slack = np.ceil(best * variants.deadline_slack).astype(np.int64)
        self._slack = slack if variants.deadline_slack > 0 else np.full_like(slack, NO_DEADLINE)
        self._pending = PendingSlots(setting, streams)
        self.sub_steps = 0
        everyone = np.arange(len(streams.seed))
        self._pending.add_arrivals(self.state, everyone)

    @property
    def episodes(self) -> int:
        """Number of episodes that are left."""
        return len(self.state.episode)

    @property
    def unfinished(self) -> Flags:
        """Episodes (E,) with tasks left."""
        return self.state.done < self.setting.task_count

    def drop_finished(self) -> Ints:
        """Drop the episodes that ended, so that the others step faster; return the remaining rows."""
        rows = np.flatnonzero(self.unfinished)
        if len(rows) < self.episodes:
            self.state = self.state.take(rows)
            self.streams = self.streams.take(rows)
            self._pending.keep(rows, self.streams)
        return rows

    def view(self) -> EdgeView:
        """Return the view for policies.

        Its columns may be the world's own: do not write to them.
        """
        s = self.state
        filled = s.pend != NONE
        now = s.time[:, None, None]
        due = self._slack[s.pend_kind]
        waited = np.where(filled, now - s.pend_arrival, 0)
        return EdgeView(
            time=s.time,
            free=s.free,
            capacity=self.capacity,
            queued=s.queued,
            can_act=self.unfinished[:, None] & ~s.passed,
            task=s.pend,
            kind=s.pend_kind,
            waited=waited,
            reach=s.pend_reach,
            due=np.where(due == NO_DEADLINE, NO_DEADLINE, due - waited),
            run_task=s.run,
            run_kind=s.run_kind,
            run_cpus=s.run_size[..., 0],
            run_gpus=s.run_size[..., 1],
            run_elapsed=np.where(s.run != NONE, now - s.run_start, 0),
        )

    # --- choices ------------------------------------------------------------------------------------------

    def step(self, choice: Choice) -> StepResult:
        """Run one round of choices by non-preemptive policies."""
        s = self.state
        void = (choice.cpus == 0) & (choice.gpus == 0)
        slot = np.where(s.passed | ~self.unfinished[:, None] | void, NONE, choice.slot)
        won, lost = self._resolve_conflicts(slot, choice.preference)
        e, n = np.nonzero(won)
        size = np.stack([choice.cpus[e, n], choice.gpus[e, n]], axis=1)
        self._start_tasks(e, n, slot[e, n], size)
        return self._advance_time(slot, won, lost)

    def step_preemptive(self, slot: Ints, allocate: Allocator) -> StepResult:
        """Run one round of a preemptive policy.

        Admit one task per cluster, then size all running tasks anew.
        """
        s = self.state
        slot = np.where(~self.unfinished[:, None], NONE, slot)
        won, lost = self._resolve_conflicts(slot, np.zeros(slot.shape))
        e, n = np.nonzero(won)
        self._start_tasks(e, n, slot[e, n], np.zeros((len(e), 2), dtype=np.int64))
        cpus, gpus = allocate(self)
        size = np.stack([cpus, gpus], axis=-1)
        held = np.where(s.run[..., None] != NONE, size, 0)
        s.run_size[:] = held
        s.free[:] = self.capacity - held.sum(axis=2) - s.down
        assert (s.free >= 0).all(), "an allocator gave more than there is"
        return self._advance_time(slot, won, lost)

    def preempt(self, flags: Flags) -> None:
        """Return running tasks to the pending ones, at the price of a checkpoint. ``flags`` is (E, N, R)."""
        e, n, r = np.nonzero(flags & (self.state.run != NONE))
        evict_tasks(self.state, self.setting, self._pending, e, n, r)

    def _resolve_conflicts(self, slot: Ints, preference: Floats) -> tuple[Flags, Flags]:
        """Return flags of clusters that keep their task, and of those that lost it to another."""
        s, n = self.state, self.setting.clusters
        cell = np.arange(self.episodes * n).reshape(-1, n) * self.setting.window + slot
        chosen = slot != NONE
        task = np.where(chosen, s.pend.ravel().take(cell), NONE)
        order = np.sort(task, axis=1)
        twice = (order[:, 1:] == order[:, :-1]) & (order[:, 1:] != NONE)
        rows = np.flatnonzero(twice.any(axis=1))
        won = chosen & (task != NONE)
        if not len(rows):  # few rounds have a conflict: compute the rule for those only
            return won, np.zeros_like(won)
        if self.setting.bayes:
            kind = s.pend_kind.ravel().take(cell[rows])
            score = conflict_rules.bayes_score(preference[rows], s.free[rows], self.minimum[kind])
            key = derive_key(self.streams.seed[rows].astype(np.uint64), _TIE + s.time[rows] * 1_000)
            tie = uniform(derive_key(key[:, None], s.rounds[rows, None] * n + np.arange(n)))
        else:
            score = np.zeros((len(rows), n))
            tie = score
        lost = np.zeros_like(won)
        lost[rows] = won[rows] & ~conflict_rules.winners(task[rows], score, tie)
        return won & ~lost, lost

    def _start_tasks(self, e: Ints, n: Ints, slot: Ints, size: Ints) -> None:
        """Start the tasks in these slots with these sizes and remove them from all pending slots."""
        if not len(e):
            return
        s = self.state
        owner = e * self.setting.clusters + n
        task = s.pend.ravel().take(owner * self.setting.window + slot)
        kind = s.pend_kind.ravel().take(owner * self.setting.window + slot)
        assert (task != NONE).all(), "a policy chose an empty slot"
        free = s.free.reshape(-1, 2)
        room = free.take(owner, axis=0)
        fits = (size >= self.minimum[kind]) & (size <= np.minimum(room, self.limit))
        assert (fits.all(axis=1) | ~size.any(axis=1)).all(), "a policy chose a size outside of the mask"
        slots = s.run.shape[2]
        empty = s.run.reshape(-1, slots).take(owner, axis=0) == NONE
        place = empty.argmax(axis=1)
        assert empty.ravel().take(place + np.arange(len(e)) * slots).all(), "no running slot is left"
        at, now = owner * slots + place, s.time.take(e)
        free[owner] = room - size
        s.run.ravel()[at] = task
        s.run_kind.ravel()[at] = kind
        s.run_size.reshape(-1, 2)[at] = size
        s.run_before.reshape(-1, 2)[at] = size
        s.run_start.ravel()[at] = now
        begun = e * self.setting.task_count + task
        s.progress.ravel()[at] = s.saved.ravel().take(begun)
        if self.setting.variants.locality_steps:
            away = self.streams.home[e, task] != n
            s.warm.ravel()[at] = np.where(away, self.setting.variants.locality_steps, 0)
        s.begun.ravel()[begun] = now
        s.where.ravel()[begun] = n
        s.size.reshape(-1, 2)[begun] = size
        self._pending.remove(s, e, task)

    def _advance_time(self, slot: Ints, won: Flags, lost: Flags) -> StepResult:
        """Decide whether time advances, and advance it."""
        s, live = self.state, self.unfinished
        self.sub_steps += int(live.sum())
        if not self.setting.multi:
            moved = live
        elif self.setting.sticky_pass:
            s.passed |= slot == NONE
            moved = s.passed.all(axis=1) & live
        else:
            moved = ~won.any(axis=1) & live
        s.rounds += 1
        rows = np.flatnonzero(moved)
        reward = np.zeros(won.shape)
        if len(rows):
            running, pending = s.run[rows] != NONE, s.pend[rows] != NONE
            reward[rows] = -(running.sum(axis=2) + pending.sum(axis=2) + s.queued[rows])
            self._advance_progress(rows, running)
            if self.setting.variants.failure_rate > 0:
                apply_failures(s, self.setting, self._pending, self.streams.seed, rows)
            s.time[rows] += 1
            s.rounds[rows] = 0
            s.passed[rows] = False
            if self.setting.corrected:
                self._pending.refill(s, rows)
            self._pending.add_arrivals(s, rows)
            self._pending.refill(s, rows)
        return StepResult(reward=reward, moved=moved, started=won, conflicts=lost)

    # --- time ---------------------------------------------------------------------------------------------

    def _step_gain(self, e: Ints, n: Ints, at: Ints) -> Floats:
        """Return the progress of these slots (``at`` counts over the batch) in this step, before a switch."""
        s, speed_table, variants = self.state, self.setting.speed_table, self.setting.variants
        kind, size = s.run_kind.ravel().take(at), s.run_size.reshape(-1, 2).take(at, axis=0)
        _, wide, high = speed_table.rate.shape
        entry = (kind * wide + size[:, 0]) * high + size[:, 1]
        rate, base = speed_table.rate.ravel().take(entry), speed_table.base.ravel().take(entry)
        gain = rate * np.sqrt(np.maximum(CONVERGENCE - s.progress.ravel().take(at), 0.0)) + base
        if self.setting.noise > 0:
            key = derive_key(self.streams.seed[e].astype(np.uint64), np.asarray(_NOISE))
            chance = uniform(derive_key(derive_key(key, s.run.ravel().take(at)), s.time[e])) - 0.5
            gain = gain + np.where(speed_table.noisy[kind], chance * self.setting.noise, 0.0)
        if variants.interference > 0:
            others = s.run_size[e, n, :, 1].sum(axis=1) - size[:, 1]
            gain = gain / (1.0 + variants.interference * others / self.capacity[n, 1])
        if variants.speed_scale:
            gain = gain * self._scale[n]
        return np.where((rate > 0) | (base > 0), np.maximum(gain, 0.0), 0.0)

    def _advance_progress(self, rows: Ints, running: Flags) -> None:
        """Add one step's progress to every running task of these episodes; complete the finished ones.

        ``running`` flags the slots of ``rows`` that hold a task.
        """
        s = self.state
        clusters, slots = s.run.shape[1:]
        found = np.flatnonzero(running)
        e = rows.take(found // (clusters * slots))
        at = e * (clusters * slots) + found % (clusters * slots)
        n = at // slots % clusters
        gain = self._step_gain(e, n, at)
        if self.setting.switch_weight < 1.0:
            gain = np.where(self._find_resized().ravel().take(at), gain * self.setting.switch_weight, gain)
            s.run_before.reshape(-1, 2)[at] = s.run_size.reshape(-1, 2).take(at, axis=0)
        if self.setting.variants.locality_steps:
            loading = s.warm.ravel().take(at) > 0
            gain = np.where(loading, 0.0, gain)
            s.warm.ravel()[at] -= loading
        progress = s.progress.ravel().take(at) + gain
        s.progress.ravel()[at] = progress
        done = np.flatnonzero(progress >= (1.0 - ROUNDING if self.setting.corrected else 1.0))
        if not len(done):
            return
        e, at = e.take(done), at.take(done)
        s.finish.ravel()[e * self.setting.task_count + s.run.ravel().take(at)] = s.time.take(e) + 1
        size = s.run_size.reshape(-1, 2).take(at, axis=0)
        np.add.at(s.free.reshape(-1, 2), at // slots, size)
        s.done += np.bincount(e, minlength=self.episodes)
        s.clear_running(at)

    def _find_resized(self) -> Flags:
        """Flag running tasks whose size a preemptive policy changed since the last step.

        Published: only the CPUs are compared, and a task just admitted counts as changed (of the readings of
        source 002 that we tried, the only one that gives its published figures). Corrected: either resource
        counts, a start does not.
        """
        s = self.state
        if self.setting.corrected:
            return np.asarray((s.run_before != s.run_size).any(axis=-1) & s.run_before.any(axis=-1))
        return np.asarray(s.run_before[..., 0] != s.run_size[..., 0])
