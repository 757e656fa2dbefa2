"""Curriculum: drawn from seed and iteration alone, with every sort of lesson in it."""

import msgspec
import pytest

torch = pytest.importorskip("torch")

from hanse.learning.edge.env import setting as settings  # noqa: E402
from hanse.learning.edge.env.streams import make_streams  # noqa: E402
from hanse.learning.edge.players.play import play, priced_player  # noqa: E402
from hanse.learning.edge.training.domain_randomisation import make_iteration, validation_names  # noqa: E402 - after the check that torch is there
from hanse.learning.edge.training.train import TrainConfig  # noqa: E402


def test_the_setting_that_is_trained_for_gets_a_larger_share_of_late_lessons() -> None:
    plan = TrainConfig(iterations=100)
    shares = []
    for first in (0, 60):
        names = [
            make_iteration(
                settings.syn3(), "randomised", 1, number, 1, 12, base_share=plan.base_share[first > 0]
            ).setting.name
            for number in range(first, first + 40)
        ]
        shares.append(names.count("syn3") / len(names))
    assert shares[0] < 0.7 < shares[1] < 1.0
    assert plan.base_share_at(0) == plan.base_share[0]
    assert plan.base_share_at(50) == pytest.approx(sum(plan.base_share) / 2)
    assert plan.base_share_at(100) == pytest.approx(plan.base_share[1])


def test_what_a_course_does_not_teach_does_not_choose_among_its_iterations() -> None:
    assert validation_names("randomised") == validation_names("fixed") == ("syn3", "hetero6")
    assert validation_names("wide") == ("syn3", "hetero6", "bench")


def test_drawn_clusters_have_a_small_one_among_them() -> None:
    drawn = [
        make_iteration(settings.syn3(), "randomised", 1, number, 1, 12, 0.9).setting for number in range(30)
    ]
    assert all(one.capacity[0][1] in {4, 8} for one in drawn)
    assert {one.clusters for one in drawn} == {3, 4, 5}
    assert {one.capacity[0][1] for one in drawn} == {4, 8}


def test_a_lesson_of_every_sort_can_be_played() -> None:
    sorts = [make_iteration(settings.syn3(), "wide", 1, 3, 1, 12, drawn) for drawn in (0.1, 0.55, 0.95)]
    assert [one.setting.name for one in sorts] == ["syn3", "bench", "randomised"]
    for one in sorts:
        small = msgspec.structs.replace(one.setting, tasks_per_cluster=8)
        assert play(small, make_streams(small, [1, 2]), priced_player(small), 5_000).mean.min() >= 1.0
    assert not sorts[1].setting.speed_table.rate.any()


def test_a_lesson_depends_on_seed_and_iteration_alone() -> None:
    one = make_iteration(settings.syn3(), "randomised", 7, 11, 4)
    other = make_iteration(settings.syn3(), "randomised", 7, 11, 4)
    assert one.setting.capacity == other.setting.capacity
    assert (one.streams.arrival == other.streams.arrival).all()
    assert (one.streams.seed.reshape(-1, 4) == one.streams.seed.reshape(-1, 4)[:, :1]).all()
