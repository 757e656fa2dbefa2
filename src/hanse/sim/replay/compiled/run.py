"""One run of the compiled league: columns in, the outcome out.

All limits and times come from the machines' own modules, the keys from the queue order itself, so only the
behaviour of the machines is written twice.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from hanse.core.broker.attempt_withdrawal import EXPECTED_MAX
from hanse.core.broker.cluster_view import WARY_TIME
from hanse.core.broker.demand_publisher import CLAIM_TASKS_MAX
from hanse.core.broker.end_acks import ACKS_PER_MESSAGE_MAX
from hanse.core.broker.job_table import shape_of
from hanse.core.broker.placement import BATCH_TASKS_MAX, BORROW_FACTOR
from hanse.core.messaging.link import WINDOW_MAX
from hanse.core.warden.attempts import ENDS_PER_MESSAGE_MAX
from hanse.core.warden.demand_table import LINES_MAX
from hanse.core.warden.grants import GRANTS_MAX, SLOTS_MAX
from hanse.core.warden.runner_sessions import STARTS_MAX, lease_span
from hanse.model.job import DEADLINE_MAX, JobClass
from hanse.model.messages import Shape
from hanse.policy.hashing import hash_numbers
from hanse.policy.interface import JobFacts
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.registry import NODE_RANKERS, QUEUE_ORDERS
from hanse.sim.baselines.task_level import engine
from hanse.sim.replay import league_setup
from hanse.sim.replay.compiled import loader
from hanse.sim.replay.league_setup import SLOT, JobSpecs, ReplayLeague, make_league
from hanse.sim.replay.queue_order import queue_order_of
from hanse.sim.replay.run_records import Ints, Progress, ReplayOutcome, ReplaySettings, ReplayWorkload

TIME_MAX: Final = 1 << 60
"""Limit of microseconds and of parts of keys: beyond it sums in C could overflow."""
TASKS_MAX: Final = (1 << 31) - 1
FIGURES: Final = (
    "begun", "running", "arrived", "ended", "moved_at", "now", "messages", "heartbeats", "rejects",
    "substitutions", "grants", "releases",
)  # fmt: skip
"""Values that ``hanse_plain_read`` returns, in its order."""


def load_problem() -> str:
    """Return the reason why there is no compiled league on this computer; empty if there is one."""
    return loader.LOAD_PROBLEM


def find_settings_objection(settings: ReplaySettings) -> str:
    """Return the reason why these settings need the machines for every workload; empty if there is none."""
    if loader.LOAD_PROBLEM:
        return loader.LOAD_PROBLEM
    if settings.faults:
        return "faults are injected into the machines"
    if not NODE_RANKERS.find_problem(settings.node_ranker) and settings.node_ranker != FirstNodeRanker.name:
        return f"only the machines know the node ranker {settings.node_ranker}"
    problem = settings.find_problem() or league_setup.find_objection(settings)
    if not problem and settings.order not in QUEUE_ORDERS.shipped:
        problem = f"the order {settings.order} belongs to another package"
    return problem


def find_objection(workload: ReplayWorkload, settings: ReplaySettings) -> str:
    """Return the reason why a run needs the machines; empty if the compiled league can run it."""
    return find_settings_objection(settings) or _find_workload_objection(workload, settings)


def _find_workload_objection(workload: ReplayWorkload, settings: ReplaySettings) -> str:
    """Return the property of a workload that does not fit into the columns of the compiled league, or that a
    broker would reject."""
    if not workload.job_count:
        return "there is no job"
    if workload.offset[0] or workload.offset[-1] != workload.task_count or workload.task_count > TASKS_MAX:
        return "its tasks cannot be numbered"
    if any(first >= past for first, past in pairwise(workload.offset)):
        return "it has a job without a task"
    if any(later < earlier for earlier, later in pairwise(workload.arrival)) or workload.arrival[0] < 0:
        return "its jobs are not in order of arrival"
    if min(workload.duration) < 0 or max(workload.estimate) > DEADLINE_MAX:
        return "it has tasks of impossible duration"
    slowest = 1 if settings.order != "priority" else len(set(workload.priority)) + 1
    if (sum(workload.duration) + workload.arrival[-1] + settings.delay_us * 1_000) * slowest >= TIME_MAX // 4:
        return "its times are too long"
    return ""


def run_compiled(
    workload: ReplayWorkload,
    settings: ReplaySettings,
    progress: Progress | None,
    starts: bool,
    idle_beats_max: int,
) -> ReplayOutcome:
    """Run the whole workload; stop early if ``progress`` asks for it. ``find_objection`` must return nothing.

    ``starts``: True if the runners report starts. ``idle_beats_max``: beats without a running task after
    which an unfinished run counts as a bug.
    """
    league = make_league(settings, reports_starts=starts)
    columns = _Columns(workload, settings, league)
    run = _CompiledRun(
        _encode_rules(workload, settings, league, starts, len(columns.latency), columns.progress), columns
    )
    try:
        figures = run.figures()
        while figures["ended"] < workload.job_count:
            figures = run.advance(engine.EVENTS_PER_REPORT)
            waits = figures["arrived"] == workload.job_count and not figures["running"]
            waits = waits and figures["ended"] < workload.job_count
            idle = figures["now"] - figures["moved_at"]
            assert not waits or idle < idle_beats_max * league.timings.beat, "a job can never end"
            if progress is not None and not progress(figures["begun"]):
                break
    finally:
        run.close()
    return ReplayOutcome(
        columns.start,
        columns.node,
        columns.job_end,
        figures["begun"],
        messages=figures["messages"],
        rejects=figures["rejects"],
        substitutions=figures["substitutions"],
        heartbeats=figures["heartbeats"],
        decision_ns=columns.decision_ns[: figures["arrived"]].tolist(),
        complete=figures["ended"] == workload.job_count,
        grants=figures["grants"],
        releases=figures["releases"],
        engine="compiled",
    )


class _Columns:
    """Arrays of ``columns_t`` in plain.h: C reads and writes them. They must outlive the league."""

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings, league: ReplayLeague) -> None:
        self.arrival = _ints(workload.arrival)
        self.offset = _ints(workload.offset)
        self.duration = _ints(workload.duration)
        self._fill_queue_columns(workload, settings, league)
        first_nodes = [league.first_node[runner.name] for runner in league.runners]
        self.first_node = _ints([*first_nodes, settings.nodes])
        self.reserve = _ints([warden.reserve for warden in league.wardens])
        machines = settings.brokers + 2 * settings.clusters
        self.seeds = _ints([hash_numbers(settings.seed, position) >> 2 for position in range(machines)])
        self.start = np.full(workload.task_count, -1, np.int64)
        self.node = np.full(workload.task_count, -1, np.int64)
        self.job_end = np.full(workload.job_count, -1, np.int64)
        self.decision_ns = np.zeros(workload.job_count, np.int64)

    def _fill_queue_columns(
        self, workload: ReplayWorkload, settings: ReplaySettings, league: ReplayLeague
    ) -> None:
        """Fill the columns of every job's key at its arrival, and of its shape."""
        specs, order = JobSpecs(workload, settings), queue_order_of(workload, settings)
        shapes: dict[Shape, int] = {}
        found: dict[tuple[bool, int], int] = {}
        first, second, shape = [], [], []
        for job, arrival in enumerate(workload.arrival):
            spec = specs.make_spec(job)
            group = spec.groups[0]
            latency = spec.klass is JobClass.LATENCY
            accepted = arrival + league.lead
            facts = JobFacts(
                accepted, group.count, group.count, group.duration or 0, spec.priority, latency, spec.tenant
            )
            key = order.key(facts)
            assert len(key) <= 2, "keys have one or two parts"
            first.append(key[0])
            second.append(key[1] if len(key) > 1 else 0)
            number = found.get((latency, spec.priority))
            if number is None:
                known = shape_of(spec, 0, 0)
                plain = Shape(SLOT, latency=latency, priority=spec.priority)
                assert known == plain, "all tasks ask for one slot"
                assert spec.priority <= 0, "no job preempts another"
                number = found[latency, spec.priority] = shapes.setdefault(known, len(shapes))
            shape.append(number)
        self.progress = order.follows_progress
        assert not self.progress or first == [past - head for head, past in pairwise(workload.offset)]
        self.first, self.second, self.shape = _ints(first), _ints(second), _ints(shape)
        self.latency = _ints([known.latency for known in shapes])

    def addresses(self) -> Ints:
        """Return the addresses of the columns, in the order of ``columns_t``."""
        columns = (
            self.arrival, self.offset, self.duration, self.first, self.second, self.shape, self.latency,
            self.first_node, self.reserve, self.seeds, self.start, self.node, self.job_end, self.decision_ns,
        )  # fmt: skip
        return np.array([column.ctypes.data for column in columns], np.uint64).view(np.int64)


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _encode_rules(
    workload: ReplayWorkload,
    settings: ReplaySettings,
    league: ReplayLeague,
    starts: bool,
    shapes: int,
    progress: bool,
) -> Ints:
    """Return ``rules_t`` of plain.h."""
    timings, grace = league.timings, league.timings.lease_grace
    runner_span = lease_span(timings.runner_lease, grace)
    assert timings.conflict_window == 0, "grants are bound at once"
    sizes = [settings.brokers, settings.clusters, workload.job_count, workload.task_count, shapes]
    kind = [settings.delay_us, league.lead, starts, progress]
    times = [
        timings.ack_delay, timings.resend_after, timings.beat, timings.runner_beat, timings.cluster_lease,
        timings.runner_lease, runner_span, timings.grant_lease, timings.delta_linger, timings.started_linger,
        timings.settle_linger, timings.suspect_after, timings.start_deadline,
        lease_span(timings.cluster_lease, grace) + runner_span,
    ]  # fmt: skip
    limits = [
        WINDOW_MAX,
        BATCH_TASKS_MAX,
        CLAIM_TASKS_MAX,
        LINES_MAX,
        ACKS_PER_MESSAGE_MAX,
        ENDS_PER_MESSAGE_MAX,
        GRANTS_MAX,
        SLOTS_MAX,
        EXPECTED_MAX,
        STARTS_MAX,
        BORROW_FACTOR,
        WARY_TIME,
        league.wardens[0].runs_max,
    ]
    return _ints([*sizes, *kind, *times, *limits])


class _CompiledRun:
    """League in C."""

    def __init__(self, rules: Ints, columns: _Columns) -> None:
        assert loader.LIBRARY is not None, loader.LOAD_PROBLEM
        self._library = loader.LIBRARY
        self._columns = columns  # C keeps their addresses
        self._figures = np.zeros(len(FIGURES), np.int64)
        addresses = columns.addresses()
        self._league: int | None = self._library.hanse_plain_make(rules.ctypes.data, addresses.ctypes.data)
        if not self._league:
            raise MemoryError("no memory for the compiled league")
        self._check()

    def advance(self, events: int) -> dict[str, int]:
        """Process this many events, or as many as end the last job; return the figures after that."""
        self._library.hanse_plain_play(self._league, events)
        self._check()
        return self.figures()

    def figures(self) -> dict[str, int]:
        """Return the present figures."""
        self._library.hanse_plain_read(self._league, self._figures.ctypes.data)
        return dict(zip(FIGURES, self._figures.tolist(), strict=True))

    def _check(self) -> None:
        wrong = self._library.hanse_plain_wrong(self._league).decode()
        if wrong:
            self.close()
            if wrong == "out of memory":
                raise MemoryError("no memory for the compiled league")
            raise AssertionError(f"the compiled league failed: {wrong}. Use --engine machines")

    def close(self) -> None:
        """Free the league."""
        if self._league:
            self._library.hanse_plain_free(self._league)
            self._league = None
