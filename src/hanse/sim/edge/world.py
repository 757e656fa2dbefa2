"""The environment itself: E episodes of N clusters, stepped together.

One *sub-step* is one round of simultaneous choices in one episode. In multi-task mode time stands still
while anybody starts a task; in single-task mode it moves after every round. The order inside a move of time
is: rewards, walk (every running task gains), completions, failures, clock, arrivals, refill of the pending
slots.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from hanse.policy.edge import conflict
from hanse.policy.edge.draws import mixed, uniform
from hanse.policy.edge.view import NO_DEADLINE, NONE, Choice, Flags, Floats, Ints, View
from hanse.sim.edge.columns import Columns, blank
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.speeds import CONVERGENCE, durations
from hanse.sim.edge.streams import Streams

ROUNDING: Final = 1e-9
"""How far below 1 a progress may be and count as done in the corrected mode."""

_NOISE, _TIE, _FAILURE = np.int64(1), np.int64(2), np.int64(3)

Allocator = Callable[["World"], tuple[Ints, Ints]]
"""A preemptive policy's second half: CPUs and GPUs of every running slot, each (E, N, R)."""


class Stepped(msgspec.Struct, frozen=True, eq=False):
    """What one sub-step did."""

    reward: Floats
    """(E, N) minus the tasks that each cluster had in hand, where time moved; else 0."""
    moved: Flags
    """(E,) where time moved."""
    started: Flags
    """(E, N) clusters whose choice took effect."""
    conflicts: Flags
    """(E, N) clusters that lost the task they chose to another."""


class World:
    """The state of E episodes and its transition. Finished episodes stand still until dropped."""

    def __init__(self, setting: Setting, streams: Streams) -> None:
        """Begin all episodes at time 0, with the arrivals of time 0 in place."""
        self.setting = setting
        self.streams = streams
        self.capacity = np.array(setting.capacity, dtype=np.int64)
        self.minimum = setting.book.minimum
        self.limit = np.array(setting.book.limit, dtype=np.int64)
        slots = int((self.capacity[:, None, :] // self.minimum[None, :, :]).min(axis=2).max())
        self.state: Columns = blank(setting, len(streams.seed), slots)
        self.state.free[:] = self.capacity
        variants = setting.variants
        scale = variants.speed_scale or (1.0,) * setting.clusters
        self._scale = np.array(scale)
        best = durations(setting.book, ROUNDING).min(axis=(1, 2))
        slack = np.ceil(best * variants.deadline_slack).astype(np.int64)
        self._slack = slack if variants.deadline_slack > 0 else np.full_like(slack, NO_DEADLINE)
        self._bits = np.int64(1) << np.arange(setting.clusters)
        self._reach = streams.connected @ self._bits
        self.sub_steps = 0
        everyone = np.arange(len(streams.seed))
        self._arrive(everyone)

    @property
    def episodes(self) -> int:
        """How many episodes are in hand."""
        return len(self.state.episode)

    @property
    def live(self) -> Flags:
        """(E,) episodes with work left."""
        return self.state.done < self.setting.tasks

    def drop_finished(self) -> Ints:
        """Forget the episodes that ended, so that the others step faster; the rows that remain."""
        rows = np.flatnonzero(self.live)
        if len(rows) < self.episodes:
            self.state = self.state.take(rows)
            self.streams = self.streams.take(rows)
            self._reach = self._reach[rows]
        return rows

    def view(self) -> View:
        """What policies may see.

        Columns are the world's own where no work was needed: do not write to them.
        """
        s = self.state
        filled = s.pend != NONE
        now = s.time[:, None, None]
        due = self._slack[s.pend_kind]
        waited = np.where(filled, now - s.pend_arrival, 0)
        return View(
            time=s.time,
            free=s.free,
            capacity=self.capacity,
            queued=s.queued,
            can_act=self.live[:, None] & ~s.passed,
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

    def step(self, choice: Choice) -> Stepped:
        """One round of choices by non-preemptive policies."""
        s = self.state
        void = (choice.cpus == 0) & (choice.gpus == 0)
        slot = np.where(s.passed | ~self.live[:, None] | void, NONE, choice.slot)
        won, lost = self._resolve(slot, choice.preference)
        e, n = np.nonzero(won)
        size = np.stack([choice.cpus[e, n], choice.gpus[e, n]], axis=1)
        self._start(e, n, slot[e, n], size)
        return self._conclude(slot, won, lost)

    def step_preemptive(self, slot: Ints, allocate: Allocator) -> Stepped:
        """One round of a preemptive policy.

        Admit one task per cluster, then size everything that runs anew.
        """
        s = self.state
        slot = np.where(~self.live[:, None], NONE, slot)
        won, lost = self._resolve(slot, np.zeros(slot.shape))
        e, n = np.nonzero(won)
        self._start(e, n, slot[e, n], np.zeros((len(e), 2), dtype=np.int64))
        cpus, gpus = allocate(self)
        size = np.stack([cpus, gpus], axis=-1)
        held = np.where(s.run[..., None] != NONE, size, 0)
        s.run_size[:] = held
        s.free[:] = self.capacity - held.sum(axis=2) - s.down
        assert (s.free >= 0).all(), "an allocator gave more than there is"
        return self._conclude(slot, won, lost)

    def preempt(self, flags: Flags) -> None:
        """Put running tasks back among the pending, at the price of a checkpoint. ``flags`` is (E, N, R)."""
        e, n, r = np.nonzero(flags & (self.state.run != NONE))
        self._evict(e, n, r)

    def _resolve(self, slot: Ints, preference: Floats) -> tuple[Flags, Flags]:
        """Which clusters keep what they chose, and which lost it to another."""
        s = self.state
        rows = np.arange(self.episodes)[:, None]
        cols = np.arange(self.setting.clusters)[None, :]
        task = np.where(slot != NONE, s.pend[rows, cols, slot], NONE)
        if self.setting.bayes:
            kind = s.pend_kind[rows, cols, slot]
            score = conflict.bayes_score(preference, s.free, self.minimum[kind])
            key = mixed(self.streams.seed.astype(np.uint64), _TIE + s.time * 1_000)
            tie = uniform(mixed(key[:, None], s.rounds[:, None] * self.setting.clusters + cols))
        else:
            score = np.zeros(slot.shape)
            tie = score
        won = conflict.winners(task, score, tie)
        return won, (task != NONE) & ~won

    def _start(self, e: Ints, n: Ints, slot: Ints, size: Ints) -> None:
        """Start the tasks in these slots with these sizes and take them out of every cluster's sight."""
        if not len(e):
            return
        s = self.state
        task = s.pend[e, n, slot]
        kind = s.pend_kind[e, n, slot]
        assert (task != NONE).all(), "a policy chose an empty slot"
        sized = size.any(axis=1)
        fits = (size >= self.minimum[kind]) & (size <= np.minimum(s.free[e, n], self.limit))
        assert (fits.all(axis=1) | ~sized).all(), "a policy chose a size outside of the mask"
        r = np.argmax(s.run[e, n] == NONE, axis=1)
        assert (s.run[e, n, r] == NONE).all(), "no running slot is left"
        s.free[e, n] -= size
        s.run[e, n, r] = task
        s.run_kind[e, n, r] = kind
        s.run_size[e, n, r] = size
        s.run_before[e, n, r] = size
        s.run_start[e, n, r] = s.time[e]
        s.progress[e, n, r] = s.saved[e, task]
        away = self.streams.home[e, task] != n
        s.warm[e, n, r] = np.where(away, self.setting.variants.locality_steps, 0)
        s.begun[e, task] = s.time[e]
        s.where[e, task] = n
        s.size[e, task] = size
        self._forget(e, task)

    def _forget(self, e: Ints, task: Ints) -> None:
        """Take started tasks out of all pending slots and queues."""
        s = self.state
        k, n, p = np.nonzero(s.pend[e] == task[:, None, None])
        s.pend[e[k], n, p] = NONE
        s.pend_kind[e[k], n, p] = 0
        s.pend_reach[e[k], n, p] = 0
        waiting = s.in_queue[e, :, task]
        if waiting.any():
            k, n = np.nonzero(waiting)
            s.in_queue[e[k], n, task[k]] = False
            np.subtract.at(s.queued, (e[k], n), 1)
        if self.setting.corrected:
            self._refill(np.unique(e))

    def _conclude(self, slot: Ints, won: Flags, lost: Flags) -> Stepped:
        """Decide whether time moves, and move it."""
        s = self.state
        self.sub_steps += int(self.live.sum())
        acted = won.any(axis=1)
        if self.setting.multi:
            if self.setting.sticky_pass:
                s.passed |= slot == NONE
                moved = s.passed.all(axis=1) & self.live
            else:
                moved = ~acted & self.live
        else:
            moved = self.live
        s.rounds += 1
        in_hand = (s.run != NONE).sum(axis=2) + (s.pend != NONE).sum(axis=2) + s.queued
        reward = np.where(moved[:, None], -in_hand, 0).astype(np.float64)
        rows = np.flatnonzero(moved)
        if len(rows):
            self._walk(moved)
            if self.setting.variants.failure_rate > 0:
                self._fail(rows)
            s.time[rows] += 1
            s.rounds[rows] = 0
            s.passed[rows] = False
            if self.setting.corrected:
                self._refill(rows)
            self._arrive(rows)
            self._refill(rows)
        return Stepped(reward=reward, moved=moved, started=won, conflicts=lost)

    # --- time ---------------------------------------------------------------------------------------------

    def _gain(self, e: Ints, n: Ints, r: Ints) -> Floats:
        """Progress of these running slots in this step, before the switching cost."""
        s, book, variants = self.state, self.setting.book, self.setting.variants
        kind, size = s.run_kind[e, n, r], s.run_size[e, n, r]
        rate = book.rate[kind, size[:, 0], size[:, 1]]
        base = book.base[kind, size[:, 0], size[:, 1]]
        gain = rate * np.sqrt(np.maximum(CONVERGENCE - s.progress[e, n, r], 0.0)) + base
        if self.setting.noise > 0:
            key = mixed(self.streams.seed[e].astype(np.uint64), np.asarray(_NOISE))
            chance = uniform(mixed(mixed(key, s.run[e, n, r]), s.time[e])) - 0.5
            gain = gain + np.where(book.noisy[kind], chance * self.setting.noise, 0.0)
        if variants.interference > 0:
            others = s.run_size[e, n, :, 1].sum(axis=1) - size[:, 1]
            gain = gain / (1.0 + variants.interference * others / self.capacity[n, 1])
        if variants.speed_scale:
            gain = gain * self._scale[n]
        return np.where((rate > 0) | (base > 0), np.maximum(gain, 0.0), 0.0)

    def _walk(self, moved: Flags) -> None:
        """Let every running task gain one step's progress, and complete those that are done."""
        s = self.state
        e, n, r = np.nonzero((s.run != NONE) & moved[:, None, None])
        gain = self._gain(e, n, r)
        if self.setting.switch_weight < 1.0:
            gain = np.where(self._switched()[e, n, r], gain * self.setting.switch_weight, gain)
            s.run_before[e, n, r] = s.run_size[e, n, r]
        if self.setting.variants.locality_steps:
            loading = s.warm[e, n, r] > 0
            gain = np.where(loading, 0.0, gain)
            s.warm[e, n, r] -= loading
        progress = s.progress[e, n, r] + gain
        s.progress[e, n, r] = progress
        done = progress >= (1.0 - ROUNDING if self.setting.corrected else 1.0)
        if not done.any():
            return
        e, n, r = e[done], n[done], r[done]
        s.finish[e, s.run[e, n, r]] = s.time[e] + 1
        np.add.at(s.free, (e, n), s.run_size[e, n, r])
        np.add.at(s.done, e, 1)
        self._clear(e, n, r)

    def _switched(self) -> Flags:
        """Where a preemptive policy changed the size of a task since the last walk.

        Published: the CPUs alone are compared, and a task it has just admitted counts as changed (of the
        readings of source 002 that we tried, the only one that gives its published figures). Corrected:
        either resource counts, a start does not.
        """
        s = self.state
        if self.setting.corrected:
            return np.asarray((s.run_before != s.run_size).any(axis=-1) & s.run_before.any(axis=-1))
        return np.asarray(s.run_before[..., 0] != s.run_size[..., 0])

    def _clear(self, e: Ints, n: Ints, r: Ints) -> None:
        """Empty running slots whose room was already given back."""
        s = self.state
        s.run[e, n, r] = NONE
        s.run_kind[e, n, r] = 0
        s.run_size[e, n, r] = 0
        s.progress[e, n, r] = 0.0
        s.warm[e, n, r] = 0

    def _arrive(self, rows: Ints) -> None:
        """Show the tasks that arrive now to the clusters they reach: a free pending slot, else the queue."""
        s, streams = self.state, self.streams
        due = (streams.arrival[rows] <= s.time[rows, None]).sum(axis=1)
        count = due - s.arrived[rows]
        most = int(count.max(initial=0))
        if most == 0:
            return
        task = s.arrived[rows, None] + np.arange(most)
        valid = np.arange(most) < count[:, None]
        k, j = np.nonzero(valid)
        s.arrived[rows] = due
        self._show(rows[k], task[k, j])

    def _show(self, e: Ints, task: Ints) -> None:
        """Show tasks, listed by episode and then age, to all clusters they reach."""
        s = self.state
        open_slot = s.pend == NONE
        counted = np.cumsum(open_slot, axis=2)
        reached = self.streams.connected[e, task]
        first = np.searchsorted(e, e, side="left")
        running = np.cumsum(reached, axis=0)
        before = np.where((first > 0)[:, None], running[first - 1], 0)
        rank: Ints = np.asarray(running - before - 1, dtype=np.int64)
        fits = reached & (rank < counted[e, :, -1])
        k, n = np.nonzero(fits)
        slot = np.argmax(counted[e[k], n] == np.asarray(rank[k, n])[:, None] + 1, axis=1)
        self._put(e[k], n, slot, task[k])
        k, n = np.nonzero(reached & ~fits)
        s.in_queue[e[k], n, task[k]] = True
        np.add.at(s.queued, (e[k], n), 1)

    def _put(self, e: Ints, n: Ints, slot: Ints, task: Ints) -> None:
        """Write tasks into pending slots."""
        s = self.state
        s.pend[e, n, slot] = task
        s.pend_kind[e, n, slot] = self.streams.kind[e, task]
        s.pend_arrival[e, n, slot] = self.streams.arrival[e, task]
        s.pend_reach[e, n, slot] = self._reach[e, task]

    def _refill(self, rows: Ints) -> None:
        """Load the oldest queued tasks into free pending slots."""
        s = self.state
        for _ in range(self.setting.window):
            room = (s.pend[rows] == NONE).any(axis=2)
            k, n = np.nonzero(room & (s.queued[rows] > 0))
            if not len(k):
                return
            e = rows[k]
            task = np.argmax(s.in_queue[e, n], axis=1)
            slot = np.argmax(s.pend[e, n] == NONE, axis=1)
            s.in_queue[e, n, task] = False
            s.queued[e, n] -= 1
            self._put(e, n, slot, task)

    # --- variants -----------------------------------------------------------------------------------------

    def _evict(self, e: Ints, n: Ints, r: Ints) -> None:
        """Stop running tasks, keep what their checkpoint holds, and show them to their clusters again."""
        if not len(e):
            return
        s = self.state
        task = s.run[e, n, r]
        kept = np.maximum(s.progress[e, n, r] - self.setting.variants.checkpoint_loss, 0.0)
        s.saved[e, task] = kept
        s.moved[e, task] = True
        np.add.at(s.free, (e, n), s.run_size[e, n, r])
        self._clear(e, n, r)
        order = np.lexsort((task, e))
        self._show(e[order], task[order])

    def _fail(self, rows: Ints) -> None:
        """Bring repaired nodes back and let nodes fail; tasks without room any more go back to pending."""
        s, variants = self.state, self.setting.variants
        back = (s.back_at[rows] == s.time[rows, None]) & s.down[rows].any(axis=2)
        k, n = np.nonzero(back)
        s.free[rows[k], n] += s.down[rows[k], n]
        s.down[rows[k], n] = 0
        key = mixed(self.streams.seed[rows].astype(np.uint64), np.asarray(_FAILURE))
        key = mixed(key[:, None], np.arange(self.setting.clusters)[None, :])
        chance = uniform(mixed(key, s.time[rows, None]))
        k, n = np.nonzero((chance < variants.failure_rate) & ~s.down[rows].any(axis=2))
        e = rows[k]
        gone = np.ceil(self.capacity[n] * variants.failure_share).astype(np.int64)
        s.down[e, n] = gone
        s.free[e, n] -= gone
        s.back_at[e, n] = s.time[e] + variants.repair_steps
        while True:
            short = (s.free[e, n] < 0).any(axis=1)
            if not short.any():
                return
            e, n = e[short], n[short]
            # the youngest task goes first: it has the least to lose; ties to the higher slot
            age = np.where(s.run[e, n] != NONE, s.run_start[e, n], NONE)
            r = age.shape[1] - 1 - np.argmax(age[:, ::-1], axis=1)
            self._evict(e, n, r)
