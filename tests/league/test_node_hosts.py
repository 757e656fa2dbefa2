"""Hosts of nodes and ports of gangs, from the league file to the warden."""

from typing import Any

import pytest
import yaml

from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data

FILE = """
brokers: [{name: b1}]
clusters:
  - name: north
    address: "10.0.0.1:7411"
    runners: [{name: far, address: "[fd00::5]:7413"}]
    nodes:
      - {cpus: 1}
      - {cpus: 1, runner: far}
      - {cpus: 1, address: rack7.example}
  - {name: south, nodes: [{cpus: 1}]}
"""


def read(**first_node: object) -> Any:
    data = yaml.safe_load(FILE)
    data["clusters"][0]["nodes"][0] |= first_node
    return league_from_data(data)


def test_a_node_has_the_host_of_its_runner_unless_it_names_one() -> None:
    league = read()
    assert isinstance(league, LeagueConfig)
    north, south = league.warden_config("north"), league.warden_config("south")
    assert [node.host for node in north.nodes] == ["10.0.0.1", "fd00::5", "rack7.example"]
    assert (north.first_port, south.first_port) == (20_000, 20_100)
    assert league_from_data(league_to_data(league)) == league


@pytest.mark.parametrize("address", ["10.0.0.5/24", "a b", "", 7, "[::1"[:1]])
def test_what_is_no_host_is_refused(address: object) -> None:
    problems = read(address=address)
    assert isinstance(problems, tuple)
    assert [problem.field for problem in problems] == ["clusters[0].nodes[0].address"]
    assert "a host such as" in problems[0].rule
