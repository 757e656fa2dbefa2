"""Leagues whose wardens have another node ranker than the seeds of every day: no promise may break."""

import pytest

from hanse.core.config import WardenConfig
from hanse.core.warden.warden import Warden
from hanse.registry import NODE_RANKERS
from hanse.sim.chaos import check_seeds, run_seed
from hanse.sim.league import LeagueFactories, PolicyNames
from hanse.sim.shipped_league import shipped_factories

SEEDS = range(12)
DEFAULT = PolicyNames().node_ranker


class _Ranked:
    """A factory of wardens with one node ranker (a class, so that it travels to other processes)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, config: WardenConfig, _: PolicyNames) -> Warden:
        return Warden(config, NODE_RANKERS.get(self.name)())


def factories_with(name: str) -> LeagueFactories:
    return shipped_factories()._replace(warden=_Ranked(name))


@pytest.mark.parametrize("name", [name for name in NODE_RANKERS.shipped if name != DEFAULT])
def test_no_promise_breaks_under_any_node_ranker(name: str) -> None:
    marks: dict[str, int] = {}
    for result in check_seeds(SEEDS, factories_with(name), 1):
        assert result.finding is None, f"seed {result.seed}: {result.finding}"
        marks |= result.marks
    assert marks["warden.substituted"], "the ranker was asked"


def test_the_name_in_the_settings_decides() -> None:
    digests = {name: run_seed(7, factories_with(name)).digest for name in NODE_RANKERS.shipped}
    assert digests[DEFAULT] == run_seed(7, shipped_factories()).digest
    assert len(set(digests.values())) == len(NODE_RANKERS.shipped), "in this league they differ"
