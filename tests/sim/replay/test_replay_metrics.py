"""Workloads, figures, intervals and pages of a replay."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hanse.sim.replay.confidence_intervals import mean_with_interval, t_975
from hanse.sim.replay.execution import run_once, summarise
from hanse.sim.replay.metrics import curves, measure
from hanse.sim.replay.plots import Axis, distribution
from hanse.sim.replay.registry import policies, select_policies
from hanse.sim.replay.report import format_figure, render_page
from hanse.sim.replay.run_records import ReplayError, ReplayOutcome, ReplaySettings, ReplayWorkload
from hanse.sim.replay.trace_workload import read_workload, scale_to_load

SECOND = 1_000_000
SMALL = ReplaySettings(nodes=4, clusters=1, brokers=1, short_cutoff_us=5 * SECOND)


def made() -> ReplayWorkload:
    """Two jobs: two tasks of 10 s and 4 s at 0 s, one of 2 s at 8 s."""
    return ReplayWorkload(
        "made",
        [0, 8 * SECOND],
        [0, 2, 3],
        [10 * SECOND, 4 * SECOND, 2 * SECOND],
        [7 * SECOND, 2 * SECOND],
        [0, 0],
    )


def test_figures_of_a_run_worked_out_by_hand() -> None:
    start = np.array([0, SECOND, 9 * SECOND])
    outcome = ReplayOutcome(
        start, np.array([0, 1, 1]), np.array([10 * SECOND, 12 * SECOND]), 3, 6, 3, 1, 0, [1000, 3000]
    )
    result = measure(made(), SMALL, outcome, ("mine", "fifo"), (2.0, 1.5))
    assert result.delay_mean == pytest.approx((0 + 2) / 2)
    assert result.delay_p50 == pytest.approx(1.0)
    assert result.short_delay_p99 == pytest.approx(2.0)
    assert result.long_delay_p99 == pytest.approx(0.0)
    assert result.jct_mean == pytest.approx((10 + 4) / 2)
    assert result.makespan == 11.0
    assert result.utilisation == pytest.approx(16 / (4 * 11))
    assert result.load == pytest.approx(16 / (4 * 8))
    assert (result.messages_per_task, result.rejects_per_task) == (2.0, 1.0)
    assert result.substitutions_per_task == pytest.approx(1 / 3)
    assert (result.decision_us_p50, result.tasks_per_cpu_second) == (2.0, 2.0)


def test_a_stopped_run_is_measured_by_the_jobs_that_ended() -> None:
    outcome = ReplayOutcome(
        np.array([0, 0, -1]), np.array([0, 1, -1]), np.array([10 * SECOND, -1]), 2, 4, complete=False
    )
    result = measure(made(), SMALL, outcome, ("mine", "fifo"), (1.0, 1.0))
    assert (result.jobs_ended, result.complete, result.messages_per_task) == (1, False, 2.0)
    assert result.short_delay_p99 is None


def test_curves_count_what_runs_and_what_waits() -> None:
    outcome = ReplayOutcome(np.array([0, SECOND, 9 * SECOND]), np.array([0, 1, 1]), np.array([0, 0]), 3)
    drawn = curves(made(), SMALL, outcome)
    at = {round(float(time)): index for index, time in enumerate(drawn.times)}
    assert drawn.utilisation[0] == 1 / 4
    assert drawn.waiting[0] == 1
    assert drawn.utilisation[at[3]] == 2 / 4
    assert drawn.waiting[at[3]] == 0
    assert drawn.utilisation[-1] == 0


def test_arrivals_are_rescaled_to_a_load() -> None:
    workload = scale_to_load(made(), 4, 0.25)
    assert workload.load(4) == pytest.approx(0.25)
    assert workload.arrival == [0, 16 * SECOND]
    with pytest.raises(ReplayError, match="different times"):
        scale_to_load(msgspec.structs.replace(made(), arrival=[0, 0]), 4, 0.5)


def test_a_trace_becomes_a_workload_that_begins_at_zero(tmp_path: Path) -> None:
    trace = tmp_path / "two.tr"
    trace.write_text("100 1 4.25 4.25\n107.5 2 3.0 2.9 3.1\n")
    workload, _ = read_workload(trace)
    assert workload.arrival == [0, 7_500_000]
    assert workload.duration == [4_250_000, 2_900_000, 3_100_000]
    assert workload.estimate == [4_250_000, 3_000_000]
    cut, _ = read_workload(trace, whole_seconds=True)
    assert cut.duration == [4_000_000, 2_000_000, 3_000_000]
    first, _ = read_workload(trace, limit=1)
    assert first.task_count == 1


def test_student_intervals() -> None:
    assert t_975(1) == pytest.approx(12.7062)
    assert t_975(40) == pytest.approx(2.0211, abs=2e-4)
    assert t_975(1000) == pytest.approx(1.9623, abs=2e-4)
    assert all(t_975(freedom) > t_975(freedom + 1) for freedom in range(1, 200))
    mean, interval = mean_with_interval([1.0, 2.0, 3.0, 4.0])
    # standard deviation 1.29099, so 3.1824 * 1.29099 / 2
    assert mean == 2.5
    assert interval == pytest.approx(2.05423, abs=1e-4)
    assert mean_with_interval([7.0]) == (7.0, 0.0)


def test_repeats_become_one_object_with_intervals() -> None:
    workload = ReplayWorkload(
        "made", [0, 1, 2], [0, 4, 8, 12], [SECOND * task for task in range(12)], [SECOND] * 3, [0] * 3
    )
    settings = ReplaySettings(nodes=10, clusters=1, brokers=1)
    runs = [
        run_once(policies()["sparrow"], workload, msgspec.structs.replace(settings, seed=seed))
        for seed in range(3)
    ]
    (row,) = summarise(runs)
    delays = [run.result.delay_mean for run in runs]
    assert len(set(delays)) > 1
    assert row["delay_mean"] == pytest.approx(np.mean([delay for delay in delays if delay is not None]))
    assert row["delay_mean_ci95"] > 0
    assert (row["repeat"], row["seed"], row["complete"]) == (3, 0, True)
    assert [run["seed"] for run in row["runs"]] == [0, 1, 2]
    assert "runs" not in summarise(runs[:1])[0]


def test_a_page_stands_alone() -> None:
    settings = ReplaySettings(nodes=10, clusters=1, brokers=1)
    workload = ReplayWorkload("a<b", [0, SECOND], [0, 20, 40], [SECOND] * 40, [SECOND] * 2, [0, 0])
    runs = [run_once(policies()[name], workload, settings) for name in ("sparrow", "central")]
    text = render_page(summarise(runs), runs, settings, "hanse replay 'a<b'")
    assert text.count("<svg") == text.count("</svg>") == 3
    assert text.count("<polyline") == 6
    assert "a&lt;b" in text
    assert "a<b" not in text
    assert "<script" not in text
    assert not re.search(r"https?:|src=|@import|url\(", text)
    assert "&quot;nodes&quot;: 10" in text
    assert "nan" not in text


def test_axes_mark_round_values() -> None:
    assert Axis("x", 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Axis("x", 0.001, 100, logarithmic=True).ticks() == pytest.approx([1e-3, 1e-2, 0.1, 1, 10, 100])
    line = distribution("d", np.array([0.0015, 0.0015, 1.0, 10.0]), 0.001)
    assert line.y[-1] == 1.0
    assert line.y[np.searchsorted(line.x, 0.01)] == 0.5


def test_refusals_say_what_to_do() -> None:
    fine = ReplaySettings(nodes=100)
    with pytest.raises(ReplayError, match=r"unknown policy nosuch; known: sparrow, .*central"):
        select_policies(["central", "nosuch"], fine)
    with pytest.raises(
        ReplayError, match=r"faults cannot be injected into sparrow.*policies that support faults"
    ):
        select_policies(["sparrow"], msgspec.structs.replace(fine, faults="faults.yaml"))
    with pytest.raises(ReplayError, match="too few"):
        select_policies(["megha"], ReplaySettings(nodes=10, clusters=4, brokers=4))


def test_figures_are_shown_with_four_digits() -> None:
    assert [format_figure(value) for value in (None, 0.0015, 12.3456, 12345.6, 7, "x")] == [
        "-", "0.0015", "12.35", "12346", "7", "x",
    ]  # fmt: skip
