"""Pending slots: what each cluster sees of the tasks that have arrived; further ones wait in its queue."""

import numpy as np

from hanse.learning.edge.env.columns import Columns
from hanse.learning.edge.env.policy_interface import NONE, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import Streams


class PendingSlots:
    """Transition of the pending slots and queues of all clusters. The state itself is in columns."""

    def __init__(self, setting: Setting, streams: Streams) -> None:
        self._setting = setting
        self._streams = streams
        self._reach = streams.connected @ (np.int64(1) << np.arange(setting.clusters))
        """Clusters that each task reaches, as bits."""

    def keep(self, rows: Ints, streams: Streams) -> None:
        """Drop all episodes but these rows, whose streams are given."""
        self._streams = streams
        self._reach = self._reach[rows]

    def add_arrivals(self, s: Columns, rows: Ints) -> None:
        """Add the arriving tasks to the clusters they reach: to a free pending slot, else to the queue."""
        streams = self._streams
        tasks = self._setting.task_count
        first = s.arrived.take(rows)
        # arrivals are in order of time: look ahead while any episode still has one now
        count, ahead, now = np.zeros_like(first), 0, s.time.take(rows)
        start = rows * tasks
        open_ = np.flatnonzero(first < tasks)
        while len(open_):
            next_ = streams.arrival.ravel().take(start.take(open_) + first.take(open_) + ahead)
            open_ = open_[next_ <= now.take(open_)]
            count[open_] += 1
            ahead += 1
            open_ = open_[first.take(open_) + ahead < tasks]
        if not count.any():
            return
        s.arrived[rows] = first + count
        e = np.repeat(rows, count)
        began = np.cumsum(count) - count
        self.show(s, e, np.repeat(first - began, count) + np.arange(len(e)))

    def show(self, s: Columns, e: Ints, task: Ints) -> None:
        """Add tasks, listed by episode and then age, to all clusters they reach."""
        clusters, window = self._setting.clusters, self._setting.window
        reached = self._streams.connected.reshape(-1, clusters).take(
            e * self._setting.task_count + task, axis=0
        )
        first = np.searchsorted(e, e, side="left")
        running = np.cumsum(reached, axis=0)
        before = np.where((first > 0)[:, None], running[first - 1], 0)
        rank: Ints = np.asarray(running - before - 1, dtype=np.int64)
        found = np.flatnonzero(reached)
        k = found // clusters
        owner = e.take(k) * clusters + found % clusters
        turn = rank.ravel().take(found)
        # the slot for a task of this rank is the open one with as many open ones before it
        counted = np.cumsum(s.pend.reshape(-1, window).take(owner, axis=0) == NONE, axis=1)
        fits = turn < counted[:, -1]
        slot = (counted <= turn[:, None]).sum(axis=1)
        shown = task.take(k)
        self._fill(s, e.take(k)[fits], owner[fits], slot[fits], shown[fits])
        if not fits.all():
            late = ~fits
            s.in_queue.reshape(-1, self._setting.task_count)[owner[late], shown[late]] = True
            np.add.at(s.queued.ravel(), owner[late], 1)

    def _fill(self, s: Columns, e: Ints, owner: Ints, slot: Ints, task: Ints) -> None:
        """Write tasks of episodes ``e`` into pending slots of clusters (``owner`` counts over the batch)."""
        entry, cell = e * self._setting.task_count + task, owner * self._setting.window + slot
        s.pend.ravel()[cell] = task
        s.pend_kind.ravel()[cell] = self._streams.kind.ravel().take(entry)
        s.pend_arrival.ravel()[cell] = self._streams.arrival.ravel().take(entry)
        s.pend_reach.ravel()[cell] = self._reach.ravel().take(entry)

    def refill(self, s: Columns, rows: Ints) -> None:
        """Load the oldest queued tasks into free pending slots."""
        clusters = self._setting.clusters
        if not s.queued.any():
            return
        owner = (rows[:, None] * clusters + np.arange(clusters)).ravel()
        owner = owner[s.queued.ravel().take(owner) > 0]
        pend, queue = (
            s.pend.reshape(-1, self._setting.window),
            s.in_queue.reshape(-1, self._setting.task_count),
        )
        for _ in range(self._setting.window):
            empty = pend.take(owner, axis=0) == NONE
            keep = np.flatnonzero(empty.any(axis=1) & (s.queued.ravel().take(owner) > 0))
            if not len(keep):
                return
            owner = owner.take(keep)
            task = queue.take(owner, axis=0).argmax(axis=1)
            queue[owner, task] = False
            s.queued.ravel()[owner] -= 1
            self._fill(s, owner // clusters, owner, empty.take(keep, axis=0).argmax(axis=1), task)

    def remove(self, s: Columns, e: Ints, task: Ints) -> None:
        """Remove started tasks from all pending slots and queues."""
        clusters = self._setting.clusters
        wide = clusters * self._setting.window
        found = np.flatnonzero(s.pend.reshape(-1, wide).take(e, axis=0) == task[:, None])
        cell = e.take(found // wide) * wide + found % wide
        s.pend.ravel()[cell] = NONE
        s.pend_kind.ravel()[cell] = 0
        s.pend_reach.ravel()[cell] = 0
        if s.queued.any():
            k, n = np.nonzero(s.in_queue[e, :, task])
            s.in_queue[e[k], n, task[k]] = False
            np.subtract.at(s.queued, (e[k], n), 1)
        if self._setting.corrected:
            self.refill(s, np.unique(e))
