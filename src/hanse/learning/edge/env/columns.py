"""Columns of the environment's state, in one place so that rows can be dropped and copied together."""

import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Flags, Floats, Ints
from hanse.learning.edge.env.setting import Setting


class Columns:
    """State of E episodes. Axes: episode, cluster, pending slot or running slot; or episode, task."""

    __slots__ = (
        "arrived",
        "back_at",
        "begun",
        "done",
        "down",
        "episode",
        "finish",
        "free",
        "in_queue",
        "moved",
        "passed",
        "pend",
        "pend_arrival",
        "pend_kind",
        "pend_reach",
        "progress",
        "queued",
        "rounds",
        "run",
        "run_before",
        "run_kind",
        "run_size",
        "run_start",
        "saved",
        "size",
        "time",
        "warm",
        "where",
    )

    episode: Ints
    """(E,) episode of the batch in this row; survives dropping."""
    time: Ints
    rounds: Ints
    """(E,) rounds of choices since time advanced."""
    arrived: Ints
    """(E,) tasks that have arrived: they are numbered in order of arrival."""
    done: Ints
    free: Ints
    down: Ints
    """(E, N, 2) capacity that is lost to failed nodes."""
    back_at: Ints
    queued: Ints
    passed: Flags
    pend: Ints
    pend_kind: Ints
    pend_arrival: Ints
    pend_reach: Ints
    in_queue: Flags
    """(E, N, T); the queue is in order of task number, which is order of arrival."""
    run: Ints
    run_kind: Ints
    run_size: Ints
    """(E, N, R, 2)."""
    run_before: Ints
    """(E, N, R, 2) size at the last advance, or at the start; 0 if a preemptive policy admitted it."""
    run_start: Ints
    progress: Floats
    warm: Ints
    """(E, N, R) steps until the task's data is loaded."""
    begun: Ints
    """(E, T) step of the last start; ``NONE`` before."""
    finish: Ints
    """(E, T) step of completion; ``NONE`` before."""
    where: Ints
    size: Ints
    """(E, T, 2) CPUs and GPUs of the last start."""
    saved: Floats
    """(E, T) progress in the last checkpoint."""
    moved: Flags
    """(E, T) True if the task was ever stopped: its last run time is then not its duration."""

    def take(self, rows: Ints) -> "Columns":
        """Return the state of some rows."""
        taken = Columns()
        for name in Columns.__slots__:
            setattr(taken, name, getattr(self, name)[rows])
        return taken

    def clear_running(self, at: Ints) -> None:
        """Empty running slots (counted over the batch) whose room was already released."""
        self.run.ravel()[at] = NONE
        self.run_kind.ravel()[at] = 0
        self.run_size.reshape(-1, 2)[at] = 0
        self.progress.ravel()[at] = 0.0
        self.warm.ravel()[at] = 0


def empty_columns(setting: Setting, episodes: int, slots: int) -> Columns:
    """Return the state before any arrival; the caller fills ``free``."""
    clusters, window, tasks = setting.clusters, setting.window, setting.task_count

    def filled_column(*shape: int, value: int = 0) -> Ints:
        return np.full((episodes, *shape), value, dtype=np.int64)

    c = Columns()
    c.episode = np.arange(episodes)
    c.time, c.rounds, c.arrived, c.done = filled_column(), filled_column(), filled_column(), filled_column()
    c.free, c.down = filled_column(clusters, 2), filled_column(clusters, 2)
    c.back_at, c.queued = filled_column(clusters, value=NONE), filled_column(clusters)
    c.passed = np.zeros((episodes, clusters), dtype=np.bool_)
    c.pend = filled_column(clusters, window, value=NONE)
    c.pend_kind, c.pend_arrival = filled_column(clusters, window), filled_column(clusters, window)
    c.pend_reach = filled_column(clusters, window)
    c.in_queue = np.zeros((episodes, clusters, tasks), dtype=np.bool_)
    c.run = filled_column(clusters, slots, value=NONE)
    c.run_kind, c.run_start = filled_column(clusters, slots), filled_column(clusters, slots)
    c.run_size, c.run_before = filled_column(clusters, slots, 2), filled_column(clusters, slots, 2)
    c.progress = np.zeros((episodes, clusters, slots))
    c.warm = filled_column(clusters, slots)
    c.begun, c.finish, c.where = (
        filled_column(tasks, value=NONE),
        filled_column(tasks, value=NONE),
        filled_column(tasks, value=NONE),
    )
    c.size = filled_column(tasks, 2)
    c.saved = np.zeros((episodes, tasks))
    c.moved = np.zeros((episodes, tasks), dtype=np.bool_)
    return c
