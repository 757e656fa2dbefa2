"""The guard: it judges by samples, doubts, takes turns, and puts a bad policy aside in play."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.network import network_file
from hanse.learning.edge.network.network import EdgeNetwork
from hanse.learning.edge.network.warden_sizing import ClusterRoom, ElasticTask, size_elastic
from hanse.learning.edge.players.guarded_player import GuardedPlayer
from hanse.learning.edge.players.play import network_player, play, priced_player, true_durations
from hanse.learning.edge.policies.guard import (
    BLOCK_STEPS,
    RETRY_EVERY,
    RULE_EVERY,
    SAMPLE_TASKS,
    SAMPLES_MIN,
    SLOWDOWN_MAX,
    GuardState,
    at_step,
    is_counted,
    is_judged,
    is_learned_turn,
    is_trusted,
    is_worse,
    record_task,
)
from hanse.learning.edge.policies.priced import Prices, compile_rule


def after(learned: list[float], rule: list[float]) -> GuardState:
    watch = GuardState()
    for slowdown in learned:
        watch = record_task(watch, slowdown, 1.0, by_learned=True)
    for slowdown in rule:
        watch = record_task(watch, slowdown, 1.0, by_learned=False)
    return watch


def shipped() -> EdgeNetwork:
    loaded = network_file.load_network(network_file.shipped_path())
    assert not isinstance(loaded, str)
    return loaded[0]


def leaning(slope: float) -> EdgeNetwork:
    """The shipped network with so much per CPU and GPU away from the rule's size in place of its own lean.

    0: the sizes are those it learned, which are bad where speed depends on CPUs; 9: it avoids the rule's.
    """
    network = shipped()
    lean = np.array([slope, slope, 0.0, 0.0], dtype=np.float32)
    return msgspec.structs.replace(network, weights={**network.weights, "lean": lean})


def test_it_trusts_until_it_has_judged_and_then_by_the_margin() -> None:
    enough = SAMPLE_TASKS * SAMPLES_MIN
    short = after([1.2] * (enough - 1), [1.1] * enough)
    assert not is_judged(short)
    assert is_trusted(short)
    full = record_task(short, 1.2, 1.0, by_learned=True)
    assert is_judged(full)
    assert not is_trusted(full)
    assert is_trusted(record_task(short, 1.2, 1.0, by_learned=True, margin=0.2))
    assert is_trusted(after([1.1] * enough, [1.2] * enough))


def test_who_was_put_aside_comes_back_when_as_good_as_the_rule() -> None:
    enough = SAMPLE_TASKS * SAMPLES_MIN
    watch = after([1.5] * enough, [1.1] * enough)
    assert watch.is_set_aside
    for _ in range(4 * SAMPLE_TASKS):  # better, but not yet as good: within the margin is not enough
        watch = record_task(watch, 1.13, 1.0, by_learned=True)
    assert not is_worse(watch, margin=0.5)
    assert watch.is_set_aside
    for _ in range(40 * SAMPLE_TASKS):
        watch = record_task(watch, 1.05, 1.0, by_learned=True)
    assert is_trusted(watch)


def test_luck_is_not_held_against_a_policy() -> None:
    rng = np.random.default_rng(5)
    aside = 0
    for _ in range(200):
        load = rng.exponential(0.5, size=(2, 8)).repeat(
            SAMPLE_TASKS, axis=1
        )  # tasks of a clump share their luck
        learned, rule = 1.0 + load
        aside += not is_trusted(after(learned.tolist(), rule.tolist()))
    assert aside < 12  # 6 %


def test_a_policy_that_is_half_slower_is_put_aside() -> None:
    rng = np.random.default_rng(6)
    aside = 0
    for _ in range(100):
        load = rng.exponential(0.25, size=(2, 12)).repeat(SAMPLE_TASKS, axis=1)
        learned, rule = np.array([[1.5], [1.0]]) * (1.0 + load)
        aside += not is_trusted(after(learned.tolist(), rule.tolist()))
    assert aside > 90


def test_a_disaster_is_put_aside_even_if_the_rule_inherits_it() -> None:
    calm = after([2.0] * 2 * SAMPLE_TASKS, [2.0] * SAMPLE_TASKS)
    assert is_trusted(calm)
    piled_up = after([6.0] * 2 * SAMPLE_TASKS, [7.0] * SAMPLE_TASKS)
    assert not is_judged(piled_up)
    assert not is_trusted(piled_up)
    blocks = range(RETRY_EVERY)
    assert not any(is_learned_turn(at_step(piled_up, BLOCK_STEPS * block)) for block in blocks)


def test_turns_are_taken_until_judged_and_then_the_better_has_most_of_them() -> None:
    enough = SAMPLE_TASKS * SAMPLES_MIN

    def share(watch: GuardState) -> float:
        blocks = range(RULE_EVERY * RETRY_EVERY)
        return float(np.mean([is_learned_turn(at_step(watch, BLOCK_STEPS * block)) for block in blocks]))

    assert share(GuardState()) == 0.5
    assert share(after([1.0] * enough, [1.0] * enough)) == 1 - 1 / RULE_EVERY
    assert share(after([2.0] * enough, [1.0] * enough)) == 1 / RETRY_EVERY


@given(st.lists(st.floats(0.5, 100.0), min_size=1, max_size=120))
def test_a_mean_stays_within_what_was_told(slowdowns: list[float]) -> None:
    side = after(slowdowns, []).learned
    assert side.samples == len(slowdowns) // SAMPLE_TASKS
    assert side.count == len(slowdowns) % SAMPLE_TASKS
    if side.samples:
        assert min(slowdowns) - 1e-9 <= side.mean <= SLOWDOWN_MAX + 1e-9
        assert side.mean_variance >= 0.0


def test_the_live_call_keeps_to_the_turns() -> None:
    setting = settings.syn3()
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    tasks, rooms = (ElasticTask(task=1, kind=0, waited=0),), (ClusterRoom((16, 16), (16, 16)),)
    first = size_elastic(tasks, (), rooms, rule, shipped(), GuardState())
    second = size_elastic(tasks, (), rooms, rule, shipped(), at_step(GuardState(), BLOCK_STEPS))
    assert (first.policy, second.policy) == ("network", "priced")
    assert size_elastic(tasks, (), rooms, rule, shipped()).policy == "network"


@pytest.mark.parametrize("slope", [0.0, 9.0], ids=["bad", "disastrous"])
def test_a_bad_network_is_put_aside_in_play(slope: float) -> None:
    setting = msgspec.structs.replace(settings.testbed3(), tasks_per_cluster=400)
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    streams = make_streams(setting, [41, 42])
    plain = play(setting, streams, priced_player(setting)).completion
    bad = leaning(slope)
    alone = play(setting, streams, network_player(bad, rule)).completion
    assert alone.mean() > 1.25 * plain.mean()
    guard = GuardedPlayer(bad, rule, 2)
    behind = play(setting, streams, guard).completion
    assert guard.untrusted_share == 1.0
    assert guard.learned_share < 0.5
    half = plain.shape[1] // 2
    assert behind[:, half:].mean() < 1.15 * plain[:, half:].mean()


def test_the_shipped_network_is_not_put_aside_at_home() -> None:
    setting = msgspec.structs.replace(settings.syn3(), tasks_per_cluster=800)
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    good = GuardedPlayer(shipped(), rule, 2)
    play(setting, make_streams(setting, [41, 42]), good)
    assert good.untrusted_share == 0.0
    assert good.learned_share > 0.5


def test_arrivals_just_after_a_change_of_turn_count_for_nobody() -> None:
    assert not is_counted(0)
    assert not is_counted(BLOCK_STEPS)
    assert is_counted(BLOCK_STEPS - 1)
    assert sum(is_counted(step) for step in range(BLOCK_STEPS)) == BLOCK_STEPS // 2
