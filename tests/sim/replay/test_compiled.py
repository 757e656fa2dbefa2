"""The compiled league against the machines: equal in every start, node, end and count, whatever the run."""

from itertools import accumulate, count
from types import ModuleType

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from hanse.core.broker import demand_publisher, end_acks, placement, warden_messages
from hanse.core.config import Timings
from hanse.core.messaging import link
from hanse.core.warden import attempts, demand_table, grants
from hanse.registry import QUEUE_ORDERS
from hanse.sim.baselines.task_level import engine
from hanse.sim.replay import hanse_policy, league_setup
from hanse.sim.replay.compiled import run as plain_run
from hanse.sim.replay.compiled.outcome_diff import describe_difference
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.league_setup import ReplayLeague, make_league, protocol_timings
from hanse.sim.replay.run_records import (
    ReplayOutcome,
    ReplaySettings,
    ReplayWorkload,
)
from hanse.sim.replay.trace_workload import read_workload
from hanse.sim.replay.validate import traces_folder
from tests.sim.replay.compiled_runs import SECOND, made, needs_compiler, same

pytestmark = needs_compiler
HOUR = 3_600 * SECOND


@st.composite
def workloads(draw: st.DrawFn) -> ReplayWorkload:
    """Small ones with many ties: of arrivals, of durations, of ends with arrivals."""
    scale = draw(st.sampled_from([0, 1, 1_000, 100_000, 10 * SECOND, 60 * SECOND]))
    durations = st.one_of(st.sampled_from([0, 1, 500, 1_000, scale]), st.integers(0, 3 * scale + 1))
    gaps = st.one_of(
        st.sampled_from([0, 0, 1, 500, 1_000, 2_000]), st.integers(0, 2 * SECOND), st.integers(0, scale + 1)
    )
    tasks = draw(st.lists(st.lists(durations, min_size=1, max_size=40), min_size=1, max_size=60))
    pauses = draw(st.lists(gaps, min_size=len(tasks) - 1, max_size=len(tasks) - 1))
    priority = draw(st.lists(st.integers(-2, 9), min_size=len(tasks), max_size=len(tasks)))
    return made([0, *accumulate(pauses)], tasks, priority)


@st.composite
def leagues(draw: st.DrawFn) -> ReplaySettings:
    """Leagues of up to sixty nodes."""
    clusters, brokers = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    least = max(2, clusters * brokers)
    return ReplaySettings(
        nodes=draw(st.integers(least, max(60, least))),
        clusters=clusters,
        brokers=brokers,
        order=draw(st.sampled_from(QUEUE_ORDERS.shipped)),
        delay_us=draw(st.sampled_from([0, 1, 20, 500, 5_000, 50_000])),
        seed=draw(st.integers(-(1 << 65), 1 << 65)),
        short_cutoff_us=draw(st.sampled_from([2, 1_000, SECOND, 90 * SECOND])),
        reserve_percent=draw(st.sampled_from([0.0, 2.0, 20.0, 50.0])),
        heartbeat_us=draw(st.sampled_from([1, 300, 1_000, 5 * SECOND])),
    )


@given(workloads(), leagues(), st.booleans())
@examples(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_small_run_is_the_same(workload: ReplayWorkload, settings: ReplaySettings, starts: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if starts:
            patch.setattr(hanse_policy, "UNREPORTED_TASKS_MAX", 0)
        assert same(workload, settings).complete


LIMITS: dict[str, tuple[tuple[ModuleType, ...], list[int]]] = {
    "WINDOW_MAX": ((link,), [24, 60, 8_192]),
    "BATCH_TASKS_MAX": ((placement,), [1, 7, 100]),
    "CLAIM_TASKS_MAX": ((demand_publisher,), [1, 10, 100]),
    "LINES_MAX": ((demand_publisher, demand_table), [1, 2, 64]),
    "ACKS_PER_MESSAGE_MAX": ((end_acks,), [1, 3, 2_000]),
    "ENDS_PER_MESSAGE_MAX": ((attempts,), [1, 3, 2_000]),
    "GRANTS_MAX": ((grants,), [1, 2, 1_024]),
    "SLOTS_MAX": ((grants,), [1, 3, 65_536]),
    "BORROW_FACTOR": ((placement,), [0, 1, 2, 5]),
    "WARY_TIME": ((warden_messages,), [0, 1_000, 1_000_000_000]),
}
"""Limits of the machines, where they are looked up, and values that make them bite in a small league."""


@st.composite
def timings(draw: st.DrawFn) -> dict[str, int]:
    """Times of the protocol, by message delay: granted room may expire before it can be bound."""
    quick = st.sampled_from([0, 1, 2, 3, 5, 20])
    return {
        "ack_delay": draw(quick), "grant_lease": draw(st.sampled_from([1, 2, 3, 4, 6, 40])),
        "delta_linger": draw(quick), "settle_linger": draw(quick), "started_linger": draw(quick),
    }  # fmt: skip


EVENTS_PER_REPORT = 2_000
REPORTS_MAX = 5


def ended(workload: ReplayWorkload, settings: ReplaySettings, name: str) -> ReplayOutcome | None:
    """The outcome, or none where the league breaks down, as it may under limits like these. Where room that
    is granted expires before anybody can use it nothing ever ends, so a run is stopped after a while."""
    reports = count(1)
    try:
        return run_hanse(
            workload, msgspec.structs.replace(settings, engine=name), lambda _: next(reports) < REPORTS_MAX
        )
    except AssertionError as reason:
        if "acknowledge" not in str(reason):
            raise
        return None


@given(
    workloads(),
    leagues(),
    st.booleans(),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, (_, values) in LIMITS.items()}),
    timings(),
)
@examples(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_other_limits_and_times_are_the_same(
    workload: ReplayWorkload,
    settings: ReplaySettings,
    starts: bool,
    limits: dict[str, int],
    times: dict[str, int],
) -> None:
    def other_times(settings: ReplaySettings, faults: bool, starts: bool) -> Timings:
        usual, unit = protocol_timings(settings, faults, starts), max(200, settings.delay_us)
        return msgspec.structs.replace(usual, **{name: value * unit for name, value in times.items()})

    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            for module in (*LIMITS[name][0], plain_run):
                patch.setattr(module, name, value)
        patch.setattr(league_setup, "protocol_timings", other_times)
        patch.setattr(engine, "EVENTS_PER_REPORT", EVENTS_PER_REPORT)
        if starts:
            patch.setattr(hanse_policy, "UNREPORTED_TASKS_MAX", 0)
        one, other = (ended(workload, settings, name) for name in ("machines", "compiled"))
        if one is None or other is None:
            assert one is other
        else:
            assert describe_difference(one, other) == ""


def test_more_lines_than_a_warden_is_told_of_are_the_same() -> None:
    jobs = range(200)
    tasks = [[SECOND + job * 100, 2 * SECOND] for job in jobs]
    workload = made([job * 1_000 for job in jobs], tasks, [job * 37 % 200 for job in jobs])
    assert same(workload, ReplaySettings(nodes=8, clusters=2, brokers=2, order="priority")).grants > 300


@pytest.mark.parametrize("delay", [0, 500, 7 * SECOND])
@pytest.mark.parametrize("starts", [False, True])
def test_long_silence_is_the_same(delay: int, starts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats, bare acknowledgements and reminders, while long tasks run, others wait, or nothing is there."""
    if starts:
        monkeypatch.setattr(hanse_policy, "UNREPORTED_TASKS_MAX", 0)
    arrival = [0, 1, SECOND, HOUR, HOUR, HOUR + 50 * SECOND, 5 * HOUR, 30 * HOUR]
    tasks = [
        [HOUR, 2 * HOUR, 61 * SECOND],
        [3 * HOUR] * 9,
        [0, 1],
        [700 * SECOND] * 7,
        [HOUR],
        [5] * 12,
        [1] * 30,
    ]
    workload = made(arrival, [*tasks, [SECOND]])
    for nodes in (4, 6, 24):
        outcome = same(workload, ReplaySettings(nodes=nodes, clusters=2, brokers=2, delay_us=delay))
        assert outcome.heartbeats > 100


@pytest.mark.parametrize("order", QUEUE_ORDERS.shipped)
def test_thousands_that_wait_are_the_same(order: str) -> None:
    tasks = [[SECOND + 7_919 * (job * 31 + task) % (3 * SECOND) for task in range(60)] for job in range(80)]
    arrival = [job * 100_000 for job in range(80)]
    workload = made(arrival, tasks, [job * 7 % 90 for job in range(80)])
    settings = ReplaySettings(
        nodes=64, clusters=4, brokers=3, order=order, reserve_percent=10.0, short_cutoff_us=2 * SECOND
    )
    assert same(workload, settings).grants > 2_000


def test_a_job_wider_than_many_messages_is_the_same() -> None:
    """Lots and claims of a hundred tasks, news of two thousand ends, grants of a thousand slots."""
    workload = made([0, 10, 20], [[SECOND] * 6_000, [SECOND] * 6_000, [SECOND, 2 * SECOND] * 2_000])
    settings = ReplaySettings(nodes=5_000, clusters=2, brokers=2)
    assert same(workload, settings).complete


def test_a_warden_that_keeps_as_many_attempts_as_it_can_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(settings: ReplaySettings, reports_starts: bool = True) -> ReplayLeague:
        league = make_league(settings, reports_starts=reports_starts)
        wardens = tuple(msgspec.structs.replace(warden, runs_max=6) for warden in league.wardens)
        return msgspec.structs.replace(league, wardens=wardens)

    monkeypatch.setattr(hanse_policy, "make_league", narrow)
    monkeypatch.setattr(plain_run, "make_league", narrow)
    workload = made([job * SECOND for job in range(30)], [[SECOND // 2] * 8 for _ in range(30)])
    assert same(workload, ReplaySettings(nodes=20, clusters=2, brokers=2)).rejects > 0


def test_a_cluster_too_wide_for_its_link_is_the_same() -> None:
    """Seven thousand ends, each at its own time, before anything goes back: links are crowded."""
    workload = made([0, 1], [[SECOND + task for task in range(7_000)], [SECOND] * 3_000])
    assert same(workload, ReplaySettings(nodes=8_000, clusters=1, brokers=1, delay_us=50_000)).complete


TRACES = {
    "YH_small.tr.gz": (200, None), "syn_250.tr.gz": (1_000, 30), "EXP_90.tr.gz": (105, 400),
    "NGO_70.tr.gz": (120, 150), "NYH_70.tr.gz": (330, 150), "YH1_sub.tr.gz": (800, 80),
    "synthetic_FB.tr.gz": (1_000, 60), "GOOG_subtrace.tr.gz": (1_000, 60),
}  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_the_public_traces_are_the_same(name: str) -> None:
    folder = traces_folder()
    if folder is None or not (folder / "tr" / name).is_file():
        pytest.skip(f"{name} is not there")
    nodes, limit = TRACES[name]
    workload, _ = read_workload(folder / "tr" / name, limit=limit)
    assert same(workload, ReplaySettings(nodes=nodes, clusters=5, brokers=3, seed=11)).complete


def test_a_stopped_run_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EVENTS_PER_REPORT", 100)
    workload = made([job * SECOND for job in range(200)], [[5 * SECOND] * 10 for _ in range(200)])
    settings = ReplaySettings(nodes=40, clusters=2, brokers=2)
    for reports in (1, 2, 3, 9):
        told: list[list[int]] = []
        outcomes = []
        for name in ("machines", "compiled"):
            told.append([])

            def progress(begun: int, mine: list[int] = told[-1], most: int = reports) -> bool:
                mine.append(begun)
                return len(mine) < most

            outcomes.append(run_hanse(workload, msgspec.structs.replace(settings, engine=name), progress))
        assert describe_difference(*outcomes) == ""
        assert told[0] == told[1]
        assert len(told[0]) == reports
        assert not outcomes[1].complete


def test_what_cannot_happen_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit so low that the league must break it: the run ends with the sentence, and nothing crashes."""
    monkeypatch.setattr(plain_run, "EXPECTED_MAX", 3)
    workload = made([0] * 9, [[SECOND]] * 9)
    with pytest.raises(AssertionError, match="expects too many starts"):
        run_hanse(workload, ReplaySettings(nodes=20, clusters=2, brokers=1))
