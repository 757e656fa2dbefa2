"""Learned run times, crowding, transfers and waiting: twins, and what the estimates promise."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.policy.finish_time import c_rows, crowding_sums, duration_rows
from hanse.policy.finish_time.crowding import Crowding
from hanse.policy.finish_time.crowding_sums import CrowdedTask, CrowdingSizes, first_answer
from hanse.policy.finish_time.duration_table import NO_KIND, WORK, WORKS_MAX, DurationTable, EndedTask
from hanse.policy.finish_time.exact_math import exact_exp, exact_log
from hanse.policy.finish_time.transfer import LinkEstimate, PathEstimate, transfer_seconds, wan_flow_rate
from hanse.policy.finish_time.waiting import cost_limit, wait_until
from hanse.policy.kernels import BACKEND

native = pytest.mark.skipif(BACKEND != "native", reason="the compiled kernels are not built")
SPEEDS = np.array([0.7, 1.0, 1.3, 1.6])


@settings(max_examples=200)
@given(st.floats(-150.0, 150.0))
def test_own_logarithm_and_exponential_are_close_to_the_true_ones(x: float) -> None:
    assert exact_exp(x) == pytest.approx(exp(x), rel=1e-12)
    assert exact_log(exp(x)) == pytest.approx(x, rel=1e-12, abs=1e-12)


# --- twins -------------------------------------------------------------------------------------------------


@native
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 6), st.sampled_from([1.0, 0.97]))
def test_rows_are_equal_to_the_bit(seed: int, classes: int, jobs: int, decay: float) -> None:
    rng = np.random.default_rng(seed)
    rows = [np.zeros(duration_rows.row_words(classes)) for _ in range(2)]
    above = rng.normal(size=duration_rows.answer_words(classes))
    above[-3:] = 0.1, 1.2, 4.0
    for _ in range(jobs):
        tasks = [(int(rng.integers(classes)), float(rng.normal(4)), float(rng.random() * 6))
                 for _ in range(rng.integers(1, 9))]  # fmt: skip
        actual, predicted = float(rng.random() * 90), float(rng.random() * 90)
        for twin, row in zip((duration_rows, c_rows), rows, strict=True):
            twin.add_job(row, classes, decay, tasks, actual, predicted)
    assert rows[0].tobytes() == rows[1].tobytes()
    answers = [twin.solve_row(row, classes, 0.2, above)
               for twin, row in zip((duration_rows, c_rows), rows, strict=True)]  # fmt: skip
    assert answers[0].tobytes() == answers[1].tobytes()
    for estimate in (0.0, 33.0):
        seconds = [twin.find_seconds(answers[0], classes, 3.0, estimate) for twin in (duration_rows, c_rows)]
        assert seconds[0].tobytes() == seconds[1].tobytes()


@native
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4), st.integers(1, 8))
def test_crowding_is_equal_to_the_bit(seed: int, labels: int, classes: int, jobs: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = CrowdingSizes(labels, classes)
    rows = [np.zeros(sizes.row_words) for _ in range(2)]
    answers = [first_answer(sizes) for _ in range(2)]
    for _ in range(jobs):
        label = int(rng.integers(labels))
        tasks = [CrowdedTask(int(rng.integers(classes)), float(rng.normal(4, 2)), tuple(rng.random(labels)))
                 for _ in range(rng.integers(1, 9))]  # fmt: skip
        for at, twin in enumerate((crowding_sums, c_rows)):
            twin.add_crowded_job(rows[at], answers[at], sizes, label, 0.99, tasks)
            answers[at] = twin.solve_crowding(rows[at], sizes, 0.1, answers[at])
    assert rows[0].tobytes() == rows[1].tobytes()
    assert answers[0].tobytes() == answers[1].tobytes()
    for parameter, value in enumerate(answers[0]):
        _, _, least, most = crowding_sums._PRIORS[sizes.group(parameter)]
        assert least <= value <= most


# --- the table ---------------------------------------------------------------------------------------------


def make_history(
    rng: np.random.Generator, table: DurationTable, jobs: int, kind: int, speeds: np.ndarray, tasks: int = 8
) -> None:
    for _ in range(jobs):
        work, classes = 60 * exp(rng.normal()), rng.integers(0, len(speeds), tasks)
        table.add_job(0, kind, [EndedTask(int(at), work * exp(0.3 * rng.normal()) / speeds[at])
                                for at in classes])  # fmt: skip


def error(table: DurationTable, kind: int, speeds: np.ndarray) -> float:
    """Standard deviation of the error of log speeds, up to a constant."""
    return float(np.std(np.array(table.find_contrasts(0, kind)) + np.log(speeds)))


def test_nothing_known_is_all_classes_alike() -> None:
    table = DurationTable(4)
    assert table.find_contrasts(3, 9) == [0.0] * 4
    assert table.find_seconds(3, 9).tolist() == pytest.approx([60.0] * 4)


def test_a_kind_without_a_comparison_has_the_contrasts_of_the_level_above() -> None:
    rng = np.random.default_rng(1)
    table = DurationTable(4)
    make_history(rng, table, 50, 1, SPEEDS)
    assert table.find_contrasts(0, 77) == table.find_contrasts(0, NO_KIND)
    table.add_job(0, 5, [EndedTask(2, 900.0), EndedTask(2, 1_000.0)])  # ten times as long, on one class only
    assert table.find_contrasts(0, 5) == pytest.approx(table.find_contrasts(0, NO_KIND), abs=1e-6)
    assert table.find_seconds(0, 5)[2] > 2 * table.find_seconds(0, NO_KIND)[2]


@pytest.mark.parametrize("seed", range(3))
def test_estimates_get_better_with_history_and_are_never_worse_than_constants(seed: int) -> None:
    """On average over kinds, whose speeds deviate from those of their kind of work."""
    rng = np.random.default_rng(seed)
    constants = DurationTable(4, {0: SPEEDS.tolist()})
    kinds = [SPEEDS * np.exp(rng.normal(0, 0.15, 4)) for _ in range(40)]

    def mean_error() -> float:
        return float(np.mean([error(constants, kind, speeds) for kind, speeds in enumerate(kinds)]))

    errors = [mean_error()]
    for jobs in (2, 4, 8, 16):
        for kind, speeds in enumerate(kinds):
            make_history(rng, constants, jobs, kind, speeds)
        errors.append(mean_error())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 3


def test_short_jobs_that_end_first_do_not_turn_the_classes_round() -> None:
    """Of jobs of one task that started together, only the short ones have ended: fast nodes look slow then,
    as longer tasks have had time to end there."""
    rng = np.random.default_rng(2)
    table = DurationTable(2)
    for _ in range(40):  # a little honest history: class 1 is twice as fast
        work = 60 * exp(rng.normal())
        table.add_job(0, 1, [EndedTask(at, work / speed) for at, speed in ((0, 1.0), (1, 2.0))])
    slow, fast = table.find_contrasts(0, 1)
    assert slow - fast == pytest.approx(log(2), rel=0.1)
    for _ in range(400):
        work, at = 60 * exp(rng.normal()), int(rng.integers(2))
        seconds = work / (1.0, 2.0)[at]
        if seconds < 20.0:  # what is longer has not ended yet
            table.add_job(0, 1, [EndedTask(at, seconds)])
    slow, fast = table.find_contrasts(0, 1)
    assert slow - fast > 0.3


def test_a_scheduler_that_prefers_a_class_for_long_jobs_does_not_confuse_the_table() -> None:
    rng = np.random.default_rng(3)
    table = DurationTable(2)
    for _ in range(300):
        long = bool(rng.integers(2))
        share = 0.8 if long else 0.2  # long jobs go to the fast class, mostly
        work = (300 if long else 30) * exp(0.3 * rng.normal())
        at = (rng.random(6) < share).astype(int)
        table.add_job(0, 1, [EndedTask(int(q), work * exp(0.2 * rng.normal()) / (1.0, 2.0)[q]) for q in at])
    slow, fast = table.find_contrasts(0, 1)
    assert slow - fast == pytest.approx(log(2), rel=0.25)


def test_larger_inputs_are_expected_to_take_longer_and_the_mean_is_right() -> None:
    rng = np.random.default_rng(4)
    table, seconds = DurationTable(1), []
    for _ in range(400):
        size = exp(rng.normal(7.0, 1.0))
        work = 0.05 * size * exp(0.5 * rng.normal())
        seconds.append(work)
        table.add_job(0, 1, [EndedTask(0, work, 1.0, size * 2**20)])
    small, large = (table.find_seconds(0, 1, exp(at) * 2**20)[0] for at in (6.0, 8.0))
    assert large / small > 4.0  # e squared is 7.4, shrunk
    expected = [table.find_seconds(0, 1, second / 0.05 * 2**20)[0] for second in seconds]
    assert float(np.mean(expected)) == pytest.approx(float(np.mean(seconds)), rel=0.25)


def test_an_estimate_counts_while_there_is_little_history() -> None:
    table = DurationTable(2)
    assert table.find_seconds(0, 1, 0.0, 500.0).tolist() == pytest.approx([500.0, 500.0])
    for _ in range(200):
        table.add_job(0, 1, [EndedTask(0, 50.0), EndedTask(1, 50.0)])
    assert 45.0 < table.find_seconds(0, 1, 0.0, 500.0)[0] < 75.0


def test_tables_of_members_add_up() -> None:
    rng = np.random.default_rng(5)
    whole, parts = DurationTable(4, half_life=0), [DurationTable(4, half_life=0) for _ in range(3)]
    for part in parts:
        make_history(rng, part, 10, 1, SPEEDS)
    rows = [part.rows[2, 1] for part in parts]
    merged = whole.merge(parts)
    assert merged.rows[2, 1].tolist() == pytest.approx((rows[0] + rows[1] + rows[2]).tolist())
    errors = [error(part, 1, SPEEDS) for part in parts]
    assert error(merged, 1, SPEEDS) < float(np.mean(errors))


def test_kinds_are_bounded_and_the_oldest_goes_first() -> None:
    table = DurationTable(2, kinds_max=3)
    for kind in (1, 2, 3, 1, 4):
        table.add_job(0, kind, [EndedTask(0, 5.0)])
    assert [number for level, number in table.rows if level == 2] == [3, 1, 4]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1e12), st.floats(1, 1e6), st.floats(0, 1e18)),
                min_size=1, max_size=9))  # fmt: skip
def test_wild_data_gives_finite_answers(tasks: list[tuple[int, float, float, float]]) -> None:
    table = DurationTable(3)
    for _ in range(4):
        table.add_job(0, 1, [EndedTask(*task) for task in tasks])
        seconds = table.find_seconds(0, 1, tasks[0][3])
        assert np.isfinite(seconds).all()
        assert (seconds > 0.0).all()


# --- crowding ----------------------------------------------------------------------------------------------


def true_slow_down(label: int, shares: np.ndarray, strength: float) -> float:
    """A form that the model is not told: cubic up to saturation, then steep."""
    u = float(shares @ np.array([0.2, 1.6])) / strength
    bent = 0.3 * u**3 if u < 1 else 0.3 + 0.95 * (u - 1)
    return 1.0 + (0.3, 1.5)[label] * bent


def crowd(rng: np.random.Generator, crowding: Crowding, jobs: int, slow: bool = True) -> None:
    for _ in range(jobs):
        label = int(rng.integers(2))
        tasks = []
        for _ in range(6):
            shares = rng.dirichlet([1, 1, 1])[:2] * rng.random()
            shares[label] += 0.1
            at = int(rng.integers(2))
            factor = true_slow_down(label, shares, (1.0, 0.7)[at]) if slow else 1.0
            tasks.append(CrowdedTask(at, log(factor) + 0.2 * rng.normal(), tuple(shares)))
        crowding.add_job(label, tasks)


def test_a_slow_down_is_learned_without_its_form() -> None:
    rng = np.random.default_rng(6)
    crowding = Crowding(2, 2)
    crowd(rng, crowding, 3_000)
    for shares in ((0.1, 0.1), (0.3, 0.4), (0.1, 0.8), (0.8, 0.2)):
        for at, strength in enumerate((1.0, 0.7)):
            for label in range(2):
                true = true_slow_down(label, np.array(shares), strength)
                assert crowding.slow_down(label, at, shares) == pytest.approx(true, rel=0.12)
    assert crowding.press(1) > 2 * crowding.press(0)
    assert crowding.strength(0) > crowding.strength(1)


def test_without_a_slow_down_next_to_none_is_found() -> None:
    rng = np.random.default_rng(7)
    crowding = Crowding(2, 2)
    assert crowding.slow_down(0, 0, (0.5, 0.5)) == 1.0
    crowd(rng, crowding, 2_000, slow=False)
    assert crowding.slow_down(1, 0, (0.2, 0.8)) < 1.05


# --- transfers and waiting ---------------------------------------------------------------------------------


def test_the_best_replica_counts_and_flows_share_links() -> None:
    near = PathEstimate(400.0, 0.0, (LinkEstimate(1_000.0, 4),))
    far = PathEstimate(125.0, 0.1, (LinkEstimate(1_000.0), LinkEstimate(2_000.0)))
    assert transfer_seconds(1_000.0, [near]) == 5.0
    assert transfer_seconds(1_000.0, [near, far]) == 5.0
    assert transfer_seconds(1_000.0, [near, far], newcomers=10) == 10.1
    assert transfer_seconds(0.0, [far]) == transfer_seconds(9.0, []) == 0.0
    assert wan_flow_rate(125e6, 4e6, 0.1) == pytest.approx(40e6)
    assert wan_flow_rate(125e6, 4e6, 0.0) == 125e6


def test_waiting_is_bounded_by_the_ideal() -> None:
    assert cost_limit(100.0, 99.0) == 130.0
    assert cost_limit(100.0, 100.0) == float("inf")
    assert wait_until(5.0, 100.0) == 105.0


def test_kinds_of_work_are_bounded_too() -> None:
    table = DurationTable(2)
    for work in range(WORKS_MAX + 20):
        table.add_job(work, NO_KIND, [EndedTask(0, 1.0)])
    works = [number for level, number in table.rows if level == WORK]
    assert works == list(range(20, WORKS_MAX + 20))
