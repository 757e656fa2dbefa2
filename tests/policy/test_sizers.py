"""What each sizer gives elastic work."""

from hanse.model.resources import Resources
from hanse.policy.sizers import GenerousSizer, LeastSizer

LEAST, MOST = Resources(1_000, 4, 0, (("licence", 1),)), Resources(5_000, 8, 1, (("licence", 4),))


def test_least_gives_just_the_ask() -> None:
    assert LeastSizer().sizes_to_try(LEAST, MOST) == (LEAST,)


def test_generous_halves_the_surplus_step_by_step() -> None:
    ladder = GenerousSizer().sizes_to_try(LEAST, MOST)
    assert [size.cpu for size in ladder[:4]] == [5_000, 3_000, 2_000, 1_500]
    assert [size.memory for size in ladder[:4]] == [8, 6, 5, 4]
    assert [size.gpu for size in ladder[:2]] == [1, 0]
    assert [dict(size.custom)["licence"] for size in ladder[:3]] == [4, 2, 1]
    assert ladder[-1] == LEAST


def test_generous_skips_sizes_that_do_not_differ() -> None:
    assert len(GenerousSizer().sizes_to_try(LEAST, LEAST.plus(Resources(cpu=1)))) == 2
