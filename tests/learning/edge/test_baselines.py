"""The literature's baselines give the published figures in distribution, and the rule beats them."""

import msgspec
import numpy as np
import pytest

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env import speeds
from hanse.learning.edge.env.policy_interface import NONE
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.players.play import EpisodeOutcome, baseline_player, play
from hanse.learning.edge.policies.optimus_fit import fit_speed

SEEDS = list(range(10))
BY_INDEX = ("random", "min", "tiresias", "tiresias-elastic", "optimus-published", "optimus")


def played(setting: Setting, name: str, seeds: list[int]) -> EpisodeOutcome:
    if name in BY_INDEX:
        setting = msgspec.structs.replace(setting, bayes=False)
    player = baseline_player(name, setting)
    assert player is not None
    return play(setting, make_streams(setting, seeds), player)


@pytest.mark.parametrize(
    ("setting", "name", "mean", "spread"),
    [
        (settings.single3(), "random", 16.38, 2.2),
        (settings.single3(), "min", 15.83, 2.3),
        (settings.single3(), "tiresias", 17.84, 2.9),
        (settings.single3(), "optimus-published", 9.021, 0.60),
        (settings.single3(), "optimus", 6.811, 0.22),
        (settings.syn3(), "random", 21.70, 3.7),
        (settings.syn3(), "min", 27.27, 4.5),
        (settings.syn3(), "tiresias-elastic", 7.924, 1.33),
        (settings.syn3(), "optimus-published", 8.293, 1.67),
        (settings.syn3(), "optimus", 4.446, 0.59),
        (settings.hetero6(), "random", 23.98, 2.5),
        (settings.hetero6(), "min", 28.29, 2.8),
        (settings.hetero6(), "tiresias-elastic", 9.994, 0.66),
        (settings.hetero6(), "optimus-published", 9.388, 0.54),
        (settings.hetero6(), "optimus", 6.342, 0.62),
    ],
    ids=lambda value: value.name if isinstance(value, Setting) else str(value),
)
def test_published_figures_in_distribution(setting: Setting, name: str, mean: float, spread: float) -> None:
    outcome = played(setting, name, SEEDS)
    assert abs(outcome.mean.mean() - mean) <= spread


def test_the_exchanged_axes_of_the_published_fit() -> None:
    book = speeds.synthetic_speeds()
    speed = book.rate * np.sqrt(1.2) + book.base
    sizes = (1, 2, slice(None)), [1, 2, 4, 8, 16]
    published = fit_speed(speed, transposed=True)[sizes[0]][sizes[1]]
    corrected = fit_speed(speed, transposed=False)[sizes[0]][sizes[1]]
    assert published == pytest.approx([0.214, 0.282, 0.272, 0.194, 0.115], abs=1e-3)
    assert corrected == pytest.approx([0.064, 0.129, 0.256, 0.438, 0.483], abs=1e-3)


@pytest.mark.parametrize(
    ("setting", "most"), [(settings.syn3(), 3.70), (settings.hetero6(), 3.60)], ids=["syn3", "hetero6"]
)
def test_the_rule(setting: Setting, most: float) -> None:
    outcome = played(setting, "priced", list(range(5_000, 5_100)))
    assert outcome.mean.mean() <= most
    assert outcome.conflicts.sum() == 0


@pytest.mark.parametrize(
    "name", ["random", "min", "fifo", "sjf", "drf", "tiresias", "tiresias-elastic", "optimus", "priced"]
)
def test_every_task_runs_once_and_is_accounted_for(name: str) -> None:
    setting = settings.hetero6()
    outcome = played(setting, name, [3])
    assert (outcome.completion >= 1).all()
    assert (outcome.ran != NONE).all()
    assert (outcome.completion >= outcome.ran).all()


def test_an_episode_does_not_depend_on_its_batch() -> None:
    setting = settings.single3()
    together = played(setting, "random", [5, 6, 7])
    alone = played(setting, "random", [6])
    assert (together.completion[1] == alone.completion[0]).all()
