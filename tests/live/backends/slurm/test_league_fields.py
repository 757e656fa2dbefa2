"""The fields of a Slurm backend in the league file."""

import pytest

from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data
from hanse.live.backends.slurm.settings import SlurmSettings


def test_the_league_file_says_how_to_reach_slurm() -> None:
    backend = {
        "kind": "slurm", "driver": "rest", "url": "http://login:6820", "token_file": "/etc/token",
        "shared_dir": "/shared", "partition": "batch", "poll": "2s", "time_limit": "1h", "array_max": 1,
    }  # fmt: skip
    data = {"brokers": [{"name": "b1"}], "clusters": [{"name": "north", "backend": backend}]}
    league = league_from_data(data)
    assert isinstance(league, LeagueConfig)
    settings = league.clusters[0].backend.settings
    assert isinstance(settings, SlurmSettings)
    assert (settings.driver, settings.poll, settings.time_limit) == ("rest", 2_000_000, 3_600_000_000)
    assert league.clusters[0].nodes == ()
    assert league_from_data(league_to_data(league)) == league


@pytest.mark.parametrize(
    ("backend", "word"),
    [
        ({"kind": "slurm", "driver": "ssh"}, "cli, rest"),
        ({"kind": "slurm", "driver": "rest"}, "slurmrestd"),
        ({"kind": "slurm", "shared_dir": "here"}, "absolute"),
        ({"kind": "slurm", "poll": "1ms"}, "100 ms"),
        ({"kind": "process", "partition": "x"}, "no field 'partition'"),
    ],
)
def test_mistakes_in_it_are_told(backend: dict[str, str], word: str) -> None:
    problems = league_from_data(
        {"brokers": [{"name": "b1"}], "clusters": [{"name": "north", "backend": backend, "nodes": [{}]}]}
    )
    assert not isinstance(problems, LeagueConfig)
    assert any(word in problem.rule for problem in problems), problems


def test_only_a_foreign_cluster_may_leave_its_nodes_out() -> None:
    problems = league_from_data({"brokers": [{"name": "b1"}], "clusters": [{"name": "north"}]})
    assert not isinstance(problems, LeagueConfig)
