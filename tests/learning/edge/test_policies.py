"""The rule, its beliefs, the search, the live call, the guards and the ways of coordinating."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env import speeds
from hanse.learning.edge.env.conflict_rules import bayes_score, winners
from hanse.learning.edge.env.policy_interface import NONE
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.network.warden_sizing import ClusterRoom, ElasticTask, RunningTask, size_elastic
from hanse.learning.edge.players.coordination import GossipLink, coordinate
from hanse.learning.edge.players.online_durations import learning_curve
from hanse.learning.edge.players.play import play, priced_player, true_durations
from hanse.learning.edge.players.search_players import search_player
from hanse.learning.edge.policies import duration_estimates
from hanse.learning.edge.policies.priced import PricedRule, Prices, compile_rule


def rule_of(prices: Prices | None = None) -> PricedRule:
    setting = settings.syn3()
    return compile_rule(true_durations(setting), setting.speed_table.minimum, prices or Prices())


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.3), st.integers(0, 16), st.integers(0, 16), st.integers(0, 1))
def test_the_compiled_rule_is_the_least_value_that_fits(
    mu: float, nu: float, c: int, g: int, kind: int
) -> None:
    rule = rule_of(Prices(gpu_price=mu, cpu_price=nu))
    fits = rule.value[kind, : c + 1, : g + 1]
    assert rule.cost[kind, c, g] == fits.min()
    if np.isfinite(fits.min()):
        assert rule.value[kind, rule.cpus[kind, c, g], rule.gpus[kind, c, g]] == fits.min()
        assert rule.cpus[kind, c, g] <= c
        assert rule.gpus[kind, c, g] <= g


def test_ten_gpus_are_the_rules_favourite_for_the_sensitive_kind() -> None:
    rule = rule_of()
    assert (rule.cpus[1, 16, 16], rule.gpus[1, 16, 16]) == (2, 10)
    assert (rule.cpus[0, 16, 16], rule.gpus[0, 16, 16]) == (2, 1)


@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.sampled_from([0.0, 0.5]), st.sampled_from([0.1, 0.9])),
        min_size=2,
        max_size=6,
    )
)
def test_every_chosen_task_has_exactly_one_winner(rows: list[tuple[int, float, float]]) -> None:
    task = np.array([[row[0] for row in rows]])
    score = np.array([[row[1] for row in rows]])
    won = winners(task, score, np.array([[row[2] for row in rows]]))
    for one in np.unique(task[task != NONE]):
        assert won[task == one].sum() == 1
        best = score[task == one].max()
        assert score[won & (task == one)] == best
    assert not won[task == NONE].any()


def test_headroom_and_preference_both_count() -> None:
    free = np.array([[[4, 4], [2, 4]]])
    minimum = np.array([[[2, 1], [2, 1]]])
    assert bayes_score(np.array([[-0.5, 0.0]]), free, minimum).tolist() == [[1.5, 1.0]]


def test_joined_beliefs_are_the_beliefs_of_all_tasks() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 2, 40), np.full(40, 2), rng.integers(1, 17, 40), rng.integers(2, 20, 40)]
    none = duration_estimates.no_observations(2, (16, 16))
    together = duration_estimates.with_completed(none, *columns)
    apart = duration_estimates.merge(
        duration_estimates.with_completed(none, *(column[:15] for column in columns)),
        duration_estimates.with_completed(none, *(column[15:] for column in columns)),
    )
    assert (together.total == apart.total).all()
    assert (together.count == apart.count).all()


def test_beliefs_start_at_the_prior_and_end_at_the_mean() -> None:
    minimum = np.array([[2, 1]])
    none = duration_estimates.no_observations(1, (16, 16))
    assert duration_estimates.estimate_durations(none, minimum)[0, 2, 5] == pytest.approx(3.0)
    kind, size = np.zeros(400, dtype=np.int64), np.full(400, 4)
    seen = duration_estimates.with_completed(none, kind, np.full(400, 2), size, np.full(400, 7))
    assert duration_estimates.estimate_durations(seen, minimum)[0, 2, 4] == pytest.approx(7.0, abs=0.01)
    assert np.isinf(duration_estimates.estimate_durations(seen, minimum)[0, 1, 4])


def test_a_falling_curve_is_fitted_to_what_was_seen() -> None:
    none = duration_estimates.no_observations(1, (16, 16))
    gpus = np.array([1, 2, 4, 8] * 5)
    seen = duration_estimates.with_completed(
        none, np.zeros(20, dtype=np.int64), np.full(20, 2), gpus, 2 + 16 // gpus
    )
    assert duration_estimates.estimate_durations(seen, np.array([[2, 1]]))[0, 2, 16] == pytest.approx(
        3.0, abs=0.05
    )


def test_learned_durations_reach_the_rule() -> None:
    curve = learning_curve(settings.syn3(), episodes=7, repetitions=4, first_seed=700_000)
    assert curve[:, 0].mean() > curve[:, 4:].mean() + 0.5
    assert curve[:, 4:].mean() <= 3.85


def test_search_with_the_true_future_beats_the_rule() -> None:
    setting = settings.syn3()
    streams = make_streams(setting, list(range(600, 606)))
    found = play(setting, streams, search_player(rule_of(), setting, futures=0, horizon=12), rounds_max=2_000)
    assert found.mean.mean() < play(setting, streams, priced_player(setting)).mean.mean()


def test_the_live_call_explains_itself() -> None:
    tasks = (
        ElasticTask(task=7, kind=1, waited=1, reach=(0, 1)),
        ElasticTask(task=8, kind=0, waited=2),
        ElasticTask(task=9, kind=1, waited=0, reach=(0,)),
    )
    rooms = (ClusterRoom(capacity=(16, 16), free=(16, 3)), ClusterRoom(capacity=(16, 16), free=(16, 16)))
    answer = size_elastic(tasks, (RunningTask(kind=1, cpus=2, gpus=10, elapsed=1),), rooms, rule_of())
    assert (answer.task, answer.cpus, answer.gpus, answer.policy) == (8, 2, 1, "priced")
    assert answer.duration == 4
    assert answer.cost == pytest.approx(4 * 1.08)
    assert [other.gpus for other in answer.alternatives] == [2, 3]
    reasons = dict(answer.passed_over)
    assert "waits for room" in reasons[9]
    nothing = size_elastic(tasks[2:], (), rooms, rule_of())
    assert nothing.task is None
    assert "waits for room" in nothing.passed_over[0][1]
    late = msgspec.structs.replace(tasks[2], waited=15)
    assert size_elastic((late,), (), rooms, rule_of()).task == 9


def test_a_better_offer_elsewhere_is_left_to_the_other() -> None:
    task = ElasticTask(task=1, kind=1, waited=0, reach=(0, 1))
    here, there = ClusterRoom((16, 16), (16, 5)), ClusterRoom((16, 16), (16, 16))
    left = size_elastic((task,), (), (here, there), rule_of())
    assert left.task is None
    assert "better offer" in left.passed_over[0][1]
    unknown = msgspec.structs.replace(there, free=None)
    assert size_elastic((task,), (), (here, unknown), rule_of()).gpus == 5


def test_the_more_is_shared_the_fewer_conflicts() -> None:
    setting = settings.syn3()
    streams = make_streams(setting, list(range(20)))
    rule = rule_of()
    none, full, central = (coordinate(setting, streams, rule, mode) for mode in ("none", "full", "central"))
    gossip = coordinate(setting, streams, rule, "gossip")
    assert central.conflicts_per_start == 0
    assert none.conflicts_per_start > full.conflicts_per_start > 0
    assert none.bytes_per_start == 0
    assert 0 < central.bytes_per_start < full.bytes_per_start
    assert gossip.outcome.mean.mean() < none.outcome.mean.mean() + 0.1


def test_lost_gossip_is_no_gossip() -> None:
    setting = settings.syn3()
    streams = make_streams(setting, [1, 2])
    deaf = coordinate(setting, streams, rule_of(), "gossip", link=GossipLink(loss=1.0))
    none = coordinate(setting, streams, rule_of(), "none")
    late = coordinate(setting, streams, rule_of(), "gossip", link=GossipLink(delay_steps=2))
    assert (deaf.outcome.completion == none.outcome.completion).all()
    assert (late.outcome.completion != none.outcome.completion).any()


def test_a_users_table() -> None:
    text = "kind,cpus,gpus,seconds\na,1,1,20\na,1,1,40\na,2,1,10\nb,1,2,5\n"
    book = speeds.from_csv(text, step_seconds=10.0)
    assert not isinstance(book, str)
    assert book.names == ("a", "b")
    assert book.base[0, 1, 1] == pytest.approx(1 / 3)
    assert book.base[0, 2, 2] == pytest.approx(1.0)
    assert book.base[1, 1, 1] == 0
    assert "line 2" in str(speeds.from_csv("kind,cpus,gpus,seconds\na,x,1,1\n", step_seconds=1.0))
    assert "no rows" in str(speeds.from_csv("kind,cpus,gpus,seconds\n", step_seconds=1.0))


def test_the_test_bed_shape_is_not_monotone_in_gpus_alone() -> None:
    steps = 1 / speeds.bench_speeds().base[0, 2, 1:]
    assert steps[1] < steps[0]
    assert steps[7] > 2 * steps[1]
    many_cpus = 1 / speeds.bench_speeds().base[0, 16, 1:]
    assert many_cpus[3] < steps[3]
