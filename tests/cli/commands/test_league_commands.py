"""Commands about the league over prepared answers: status, clusters, nodes, drain."""

import json
from typing import Any

import pytest

from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from tests.client.canned import (
    AMOUNTS,
    Answer,
    CannedLeague,
    cluster_answer,
    cluster_with,
    not_found,
)

Captured = pytest.CaptureFixture[str]


def test_a_drain_without_its_warden(canned: CannedLeague, capsys: Captured) -> None:
    door = canned.cluster("north", not_found)
    door.close()
    del canned.doors["north"]
    assert run(["drain", "north/3"]) == ExitCode.UNAVAILABLE
    assert "the cluster north" in capsys.readouterr().err


def league_of(*brokers: str, reachable: bool = True, **more: Any) -> Any:
    answer = {
        **more,
        "league": "tested", "broker": "broker-1", "version": "1",
        "brokers": [{"name": name, "door": "somewhere", "alive": True} for name in brokers],
        "clusters": [{"name": "north", "door": "", "reachable": reachable, "seen_seconds": 0.25, "nodes": 2,
                      "capacity": AMOUNTS, "free": {**AMOUNTS, "cpu": 500}}],
        "jobs": {"running": 2, "failed": 1},
    }  # fmt: skip
    nodes = {
        "nodes": [{"cluster": "north", "node": 0, "capacity": AMOUNTS, "free": AMOUNTS, "attributes": {}}]
    }
    return lambda asked: Answer(200, answer if asked.path == "/v1/league" else nodes)


def test_status_names_members_that_may_not_act_or_have_another_file(
    canned: CannedLeague, capsys: Captured
) -> None:
    names = ("broker-1", "broker-2")
    canned.broker("broker-1", league_of(*names, file_version=3, fenced={"broker-9": "it lost records"}))
    other = {"north": "it has version 3"}
    canned.broker("broker-2", league_of(*names, file_version=4, other_files=other, fenced={"north": "older"}))
    canned.cluster("north", cluster_answer)
    assert run(["status"]) == ExitCode.FAILED
    said = capsys.readouterr()
    assert "may not act (another league file)" in " ".join(said.out.split())
    assert "broker-9 may not act: it lost records" in said.err
    assert "the league file is version 4, but north: it has version 3" in said.err
    assert run(["status", "--json"]) == ExitCode.FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["fenced"] == {"broker-9": "it lost records", "north": "older"}
    assert (told["file_version"], told["other_files"]) == (4, other)


def test_status(canned: CannedLeague, capsys: Captured) -> None:
    canned.broker("broker-1", league_of("broker-1", "broker-2"))
    canned.broker("broker-2", league_of("broker-1", "broker-2"))
    canned.cluster("north", cluster_answer)
    assert run(["status"]) == ExitCode.OK
    said = capsys.readouterr().out
    for word in (
        "league tested",
        "4 running",
        "2 failed",
        "draining (1 of 2)",
        "0.5/8",
        "1/1 fpga",
        "250 ms ago",
    ):
        assert word in said, word
    canned.doors.pop("broker-2").close()
    assert run(["status", "--json"]) == ExitCode.FAILED
    found = json.loads(capsys.readouterr().out)
    assert [one["answers"] for one in found["brokers"]] == [True, False]
    assert (found["clusters"][0]["nodes_draining"], found["clusters"][0]["running"]) == (1, 3)
    assert found["jobs"]["running"] == 2


def test_status_of_a_league_with_a_lost_cluster(canned: CannedLeague, capsys: Captured) -> None:
    canned.broker("broker-1", league_of("broker-1", reachable=False))
    assert run(["status"]) == ExitCode.FAILED
    assert "out of reach" in capsys.readouterr().out


def test_clusters_and_nodes(canned: CannedLeague, capsys: Captured) -> None:
    canned.broker("broker-1", league_of("broker-1"))
    door = canned.cluster("north", cluster_answer)
    assert run(["clusters"]) == ExitCode.OK
    assert "no cgroups" in capsys.readouterr().err
    assert run(["nodes", "north"]) == ExitCode.OK
    said = capsys.readouterr().out
    for word in ("north/0", "draining", "zone=a", "north/1", "down"):
        assert word in said, word
    assert run(["nodes", "south"]) == ExitCode.USAGE
    assert " withheld" not in said
    door.close()
    del canned.doors["north"]
    assert run(["nodes"]) == ExitCode.OK
    said_both = capsys.readouterr()
    assert "as last heard of" in said_both.out
    assert "north does not answer" in said_both.err


def test_nodes_that_others_keep_from_the_league_say_why(canned: CannedLeague, capsys: Captured) -> None:
    drained = "in Slurm it is IDLE+DRAIN (fans are loud)"
    reasons = [drained] * 10 + ["Slurm does not list it", ""]
    rows = [
        {"node": at, "attributes": {}, "up": True, "draining": False, "withheld": why}
        for at, why in enumerate(reasons)
    ]
    canned.broker("broker-1", league_of("broker-1"))
    canned.cluster("north", lambda asked: cluster_with(asked, *rows))
    assert run(["nodes", "north"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.count(" withheld ") == 11
    named = ", ".join(f"north/{at}" for at in range(8))
    assert said.splitlines()[-2:] == [f"{named} and 2 more: {drained}.", "north/10: Slurm does not list it."]
    assert run(["clusters"]) == ExitCode.OK
    assert "withheld (11 of 2)" in capsys.readouterr().out


def test_draining(canned: CannedLeague, capsys: Captured) -> None:
    door = canned.cluster("north", cluster_answer)
    assert run(["drain", "north/1", "north/0"]) == ExitCode.OK
    assert capsys.readouterr().out == "north/1, north/0 takes no new tasks\n"
    assert run(["drain", "north/1", "north"]) == ExitCode.OK
    assert run(["undrain", "north"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("north is open again\n")
    assert [one.body for one in door.asked] == [
        {"nodes": [1, 0], "drain": True}, {"whole": True, "drain": True}, {"whole": True, "drain": False}
    ]  # fmt: skip
    assert run(["drain", "north/9"]) == ExitCode.USAGE
    assert "hanse nodes north" in capsys.readouterr().err
    for place in ("north/x", "/1", "north/-1"):
        assert run(["drain", place]) == ExitCode.USAGE
