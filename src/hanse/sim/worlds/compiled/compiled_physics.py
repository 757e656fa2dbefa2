"""A world in C, for whoever decides outside of it: the interface of ``WorldPhysics``."""

from types import TracebackType
from typing import Final, Self

import numpy as np

from hanse.sim.worlds.columns import REPLICAS_MAX, Ints, SmallInts, WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.job_shapes import job_shapes
from hanse.sim.worlds.physics import EventKind, WorldEvent

EVENTS_MAX: Final = 4_096
"""Events that one call of ``advance`` returns at most: more at one time need a further call."""
_WORLD_COLUMNS: Final = (
    "node_cluster", "node_rack", "node_class", "node_cpu", "node_memory", "node_gpu", "node_bandwidth",
    "rack_cluster", "rack_uplink", "cluster_wan", "wan_flow_max", "round_trip", "class_speed",
)  # fmt: skip
_WORK_COLUMNS: Final = (
    "job_arrival", "job_home", "job_kind", "job_work_kind", "job_template", "job_offset", "job_cpu",
    "job_memory", "job_gpu", "job_classes", "job_gang", "job_deadline", "job_estimate", "needs_offset",
    "needs", "replica_rack", "task_bytes", "task_work", "job_demand", "job_bandwidth_sensitivity",
    "job_cache_sensitivity", "job_pollution", "template_speed", "outage_node", "outage_from", "outage_until",
)  # fmt: skip
_TYPES: Final = {
    **dict.fromkeys(
        (
            "node_cluster", "node_rack", "node_class", "rack_cluster", "job_home", "job_kind",
            "job_work_kind", "job_template", "job_gang", "replica_rack", "outage_node",
        ), "int32",
    ),
    **dict.fromkeys(
        (
            "node_bandwidth", "rack_uplink", "cluster_wan", "wan_flow_max", "class_speed", "task_bytes",
            "task_work", "job_demand", "job_bandwidth_sensitivity", "job_cache_sensitivity", "job_pollution",
            "template_speed",
        ), "float64",
    ),
    "job_classes": "uint64",
}  # fmt: skip
"""Types of the columns that are not int64."""


def _check_columns(world: WorldColumns, work: WorkColumns) -> None:
    """Check what C cannot: the sizes and types of columns that it reads by address."""
    clusters, racks, nodes = len(world.cluster_names), len(world.rack_cluster), len(world.node_cpu)
    jobs, tasks = work.job_count, work.task_count
    assert work.replica_rack.shape == (jobs, REPLICAS_MAX), "a column for each replica"
    assert work.template_speed.shape[1] == len(world.class_names), "a speed for each class"
    assert world.wan_flow_max.shape == (clusters, clusters), "a flow for each pair of clusters"
    assert (len(world.rack_uplink), len(world.cluster_wan)) == (racks, clusters), "a capacity for each link"
    assert int(work.job_offset[-1]) == tasks, "an offset for each job"
    assert len(work.task_bytes) == tasks, "bytes for each task"
    assert int(work.job_template.max(initial=0)) < len(work.template_speed), "a speed for each template"
    assert bool((work.template_speed > 0).all()), "a task makes progress wherever it runs"
    limits = {"node_cluster": clusters, "node_rack": racks, "node_class": len(world.class_names)}
    for name, limit in limits.items():
        column = getattr(world, name)
        assert len(column) == nodes, name
        assert 0 <= int(column.min()) <= int(column.max()) < limit, name
    for columns, names in ((world, _WORLD_COLUMNS), (work, _WORK_COLUMNS)):
        for name in names:
            kind = str(getattr(columns, name).dtype)
            assert kind == _TYPES.get(name, "int64"), f"{name} has the type {kind}"


class CompiledPhysics:
    """The state of a world in which work runs, in C. Use it as a context manager."""

    def __init__(self, world: WorldColumns, work: WorkColumns, shape: SmallInts | None = None) -> None:
        assert loader.LIBRARY is not None, loader.LOAD_PROBLEM
        _check_columns(world, work)
        self._library = loader.LIBRARY
        self.work = work
        tasks, jobs = work.task_count, work.job_count
        self.node = np.full(tasks, -1, np.int32)
        self.start_time, self.run_time = np.full(tasks, -1, np.int64), np.full(tasks, -1, np.int64)
        self.end_time, self.decision_ns = np.full(tasks, -1, np.int64), np.zeros(jobs, np.int64)
        columns = [getattr(world, name) for name in _WORLD_COLUMNS]
        columns += [getattr(work, name) for name in _WORK_COLUMNS]
        columns += [job_shapes(work, None) if shape is None else shape]
        columns += [self.node, self.start_time, self.run_time, self.end_time, self.decision_ns]
        self._columns = [np.ascontiguousarray(column) for column in columns]  # C keeps their addresses
        sizes = np.array(
            [
                len(world.cluster_names), len(world.rack_cluster), len(world.node_cpu),
                len(world.class_names), jobs, tasks, len(work.outage_node), world.holds_cores,
            ], np.int64,
        )  # fmt: skip
        constants = np.array([world.rack_flow_max, world.lan_flow_max, world.knee, world.slope])
        addresses = np.array([column.ctypes.data for column in self._columns], np.uint64)
        self._events = np.zeros((EVENTS_MAX, 3), np.int64)
        self.handle: int | None = self._library.hanse_world_make(
            sizes.ctypes.data, constants.ctypes.data, addresses.ctypes.data
        )
        """Address of the world in C."""
        if not self.handle:
            raise MemoryError("no memory for the world")

    def __enter__(self) -> Self:
        """Return the world."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the world."""
        self.close()

    @property
    def now(self) -> int:
        """Present time."""
        return int(self._sums()[0][3])

    def start(self, task: int, node: int, now: int) -> bool:
        """Give a waiting task a place. It reads its input first, or runs at once (True)."""
        runs = self._library.hanse_world_start(self.handle, task, node, now)
        self.check()
        return bool(runs)

    def stage(self, task: int, rack: int, now: int) -> bool:
        """Bring a waiting task's input to a rack. True: a STAGED event follows; False: nothing to move."""
        moves = self._library.hanse_world_stage(self.handle, task, rack, now)
        self.check()
        return bool(moves)

    def withdraw(self, task: int, now: int) -> None:
        """Undo a task's attempt: the task waits again, from nothing."""
        self._library.hanse_world_withdraw(self.handle, task, now)
        self.check()

    def next_time(self) -> int:
        """Return the time of the next event; ``NEVER`` if there is none."""
        return int(self._library.hanse_world_next(self.handle))

    def advance(self, until: int) -> tuple[int, list[WorldEvent]]:
        """Let the events of the next time happen, if that is not after ``until``; return the time and
        them."""
        count = self._library.hanse_world_advance(self.handle, until, self._events.ctypes.data, EVENTS_MAX)
        self.check()
        rows = self._events[:count].tolist()
        return self.now, [WorldEvent(time, EventKind(kind), number) for time, kind, number in rows]

    def outcome(self, complete: bool) -> WorldOutcome:
        """Return the outcome so far, without messages, which belong to whoever decides."""
        counts, read = self._sums()
        lost: Ints = np.zeros((int(counts[2]), 5), np.int64)
        self._library.hanse_world_lost(self.handle, lost.ctypes.data)
        rack, lan, wan = read.tolist()
        return WorldOutcome(
            node=self.node, start=self.start_time, run=self.run_time, end=self.end_time,
            launches=int(counts[0]), wasted_core_us=int(counts[1]),
            bytes_rack=rack, bytes_lan=lan, bytes_wan=wan, messages=0, message_bytes=0,
            decision_ns=self.decision_ns, complete=complete, lost=lost,
        )  # fmt: skip

    def check(self) -> None:
        """Raise if something is wrong with the world."""
        wrong = self._library.hanse_world_wrong(self.handle).decode()
        if wrong == "out of memory":
            raise MemoryError("no memory for the world")
        assert not wrong, f"the compiled world failed: {wrong}"

    def _sums(self) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        counts, read = np.zeros(4, np.int64), np.zeros(3)
        self._library.hanse_world_sums(self.handle, counts.ctypes.data, read.ctypes.data)
        return counts, read

    def close(self) -> None:
        """Free the world."""
        if self.handle:
            self._library.hanse_world_free(self.handle)
            self.handle = None
