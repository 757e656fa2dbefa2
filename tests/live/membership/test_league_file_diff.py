"""What may follow on a league file, and what is said of it."""

import msgspec
import pytest

from hanse.league.config import LeagueConfig
from hanse.league.file import league_to_text, parse
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data
from hanse.live.http.league_file_api import next_version_text
from hanse.live.membership.league_file_diff import (
    change_problem,
    describe_changes,
    find_newly_retired,
    is_same,
    retire_member,
)

TEXT = """# the league of the harbour
league: hansa
brokers:
  - {name: b1, address: "10.0.0.1:1", door: "10.0.0.1:2"}
  - {name: b2, address: "10.0.0.2:1", door: "10.0.0.2:2"}
clusters:
  - {name: north, address: "10.0.0.3:1", door: "10.0.0.3:2", nodes: [{count: 2, cpus: 4}]}  # old racks
"""
WEST = '  - {name: west, address: "10.0.0.4:1", door: "10.0.0.4:2", nodes: [{cpus: 4}]}\n'


def league(text: str = TEXT) -> LeagueConfig:
    return parse(text.encode(), "the test's file")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TEXT + WEST, ""),
        (TEXT.replace("hansa", "other"), "the league is called hansa"),
        (TEXT.replace("name: b2", "name: b3"), "the broker b2 is not at its place"),
        (TEXT.replace("count: 2", "count: 1"), "north has 1 nodes in the new file and 2 now"),
        (TEXT.replace("name: north", "retired: true, name: north"), "no cluster would be left"),
        (TEXT + WEST.replace("10.0.0.4:2", "10.0.0.4:0"), "west needs 'address' and 'door' with a port"),
    ],
)
def test_what_may_follow(text: str, problem: str) -> None:
    found = change_problem(league(), league(text))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_who_has_retired_does_not_come_back() -> None:
    gone = retire_member(league(TEXT + WEST), "west")
    assert gone is not None
    assert change_problem(league(TEXT + WEST), gone) == ""
    assert change_problem(gone, league(TEXT + WEST)).startswith("west was retired")
    assert find_newly_retired(league(TEXT + WEST), gone) == ["west"]
    assert gone.is_retired("west")
    assert [entry.name for entry in gone.serving_clusters] == ["north"]
    assert retire_member(gone, "nobody") is None
    assert league_from_data({}) != gone


def test_a_change_is_told_in_sentences() -> None:
    new = league(TEXT.replace("10.0.0.2:2", "10.0.0.2:9").replace("cpus: 4", "cpus: 8") + WEST)
    assert describe_changes(league(), new) == [
        "The broker b2 changes: door.",
        "The cluster north changes: nodes.",
        "The cluster west is new.",
    ]
    assert describe_changes(new, new) == []


def test_a_new_number_keeps_the_comments() -> None:
    first = next_version_text(TEXT, league(), league())
    assert first == "version: 1\n" + TEXT
    second = next_version_text(first, league(first), league(first))
    assert second == "version: 2\n" + TEXT
    assert league(second) == msgspec.structs.replace(league(), version=2)


def test_a_newcomer_is_on_record_with_the_version_in_which_it_joined() -> None:
    first = next_version_text(TEXT + WEST, league(), league(TEXT + WEST))
    assert first == "version: 1\njoined: {west: 1}\n" + TEXT + WEST
    config = league(first).broker_config("b1")
    assert (config.version, config.brokers_since, config.clusters_since) == (1, (0, 0), (0, 1))
    forged = first.replace("west: 1", "west: 7")
    second = next_version_text(forged, league(first), league(forged))
    assert second.startswith("version: 2\njoined: {west: 1}\n"), "what is on record counts, not what is sent"
    assert league(league_to_text(league(second))) == league(second)
    wrong = league_from_data({"brokers": [], "clusters": [], "joined": {"west": "soon"}})
    assert isinstance(wrong, tuple)
    assert "joined" in [problem.field for problem in wrong]


def test_it_is_on_record_which_clusters_were_drained_when_they_left() -> None:
    before, text = league(TEXT + WEST), TEXT + WEST.replace("{name", "{retired: true, name")
    first = next_version_text(text, before, league(text))
    assert first == "version: 1\ndrained: [west]\n" + text
    config = league(first).broker_config("b1")
    assert (config.retired, config.drained) == (("west",), ("west",))
    assert league(league_to_text(league(first))) == league(first)
    assert is_same(league(first), league(text)), "what is kept need not be sent"

    forced = next_version_text(text, before, league(text), is_forced=True)
    assert forced == "version: 1\n" + text
    forged = "drained: [west]\n" + forced
    second = next_version_text(forged, league(forced), league(forged))
    assert league(second).drained == (), "what is on record counts, not what is sent"
    broker = text.replace("{name: b2", "{retired: true, name: b2")
    third = next_version_text(broker, league(text), league(broker))
    assert league(third).drained == (), "brokers are not drained"


@pytest.mark.parametrize("wrong", ["west", "b2", "nobody"])
def test_who_has_not_retired_was_not_drained_when_it_left(wrong: str) -> None:
    found = league_from_data({**league_to_data(league(TEXT + WEST)), "drained": [wrong]})
    assert isinstance(found, tuple)
    assert [problem.field for problem in found] == ["drained"]


def test_a_file_that_cannot_be_numbered_by_a_line_is_written_anew() -> None:
    flow = "{league: hansa, version: 3, brokers: [{name: b1}], clusters: [{name: north, nodes: [{cpus: 1}]}]}"
    found = next_version_text(flow, league(flow), league(flow))
    assert league(found) == msgspec.structs.replace(league(flow), version=4)
    assert league(league_to_text(league(found))) == league(found)
