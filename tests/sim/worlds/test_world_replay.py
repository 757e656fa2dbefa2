"""``hanse replay --world`` as its users meet it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hanse.cli.commands.replay import main
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.measures import TIME_FIELDS
from hanse.sim.worlds.policy_registry import world_policies
from hanse.sim.worlds.world_file import write_world
from tests.sim.worlds.toy_worlds import toy_world


@pytest.fixture(name="files")
def write_files(tmp_path: Path) -> tuple[Path, Path]:
    """A world, and a trace."""
    world, trace = tmp_path / "toy.yaml", tmp_path / "tiny.tr"
    write_world(world, toy_world())
    rows = "".join(f"{at * 5} 3 1 20 30 {40 + at % 7}\n" for at in range(900))
    trace.write_text(rows, encoding="utf-8")
    return world, trace


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["replay", *(str(word) for word in words)])


def rows_of(result: Result, out: Path) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return rows


def test_policies_are_compared_with_the_first(files: tuple[Path, Path], tmp_path: Path) -> None:
    world, trace = files
    out = tmp_path / "out.json"
    words = (trace, trace, "--world", world, "--policy", "greedy,best-fit", "--load", "0.4", "--repeat", "2")
    rows = rows_of(run(*words, "--order", "fifo", "--json", out), out)
    assert [row["policy"] for row in rows] == ["greedy", "best-fit"]
    for row in rows:
        assert (row["baseline"], row["repeat"], row["order"], row["complete"]) == ("greedy", 2, "fifo", True)
        assert [each["seed"] for each in row["runs"]] == [0, 1]
        assert "completion_mean_vs_greedy_ci95" in row
    assert rows[0]["completion_mean_vs_greedy"] == 0.0
    again = rows_of(run(*words, "--order", "fifo", "--json", out), out)
    assert [_without_times(row) for row in again] == [_without_times(row) for row in rows]


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    known = {field: value for field, value in row.items() if not field.startswith(TIME_FIELDS)}
    return {**known, "runs": [_without_times(each) for each in row.get("runs", [])]}


def test_all_policies_run_by_default_and_the_table_names_them(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "LOAD_PROBLEM", "not here")  # the twin must do, too
    world, trace = files
    result = run(trace, "--world", world, "--load", "0.02", "--limit", "300", "--stretch", "train")
    assert result.exit_code == 0, result.output
    for name, policy in world_policies().items():
        assert (f" {name} " in result.output) is not policy.is_variant
    assert "vs independent %" in result.output
    assert "train of tiny.tr" in result.output


def test_what_does_not_go_with_a_world_is_refused_with_a_way_out(files: tuple[Path, Path]) -> None:
    world, trace = files
    cases = {
        ("--nodes", "5"): "the world file says which nodes",
        ("--faults", "f.yaml"): "outages stand in the world file",
        ("--report", "r.html"): "use --json",
        ("--policy", "central"): "unknown policy central for a world; known: independent, greedy",
        ("--order", "priority"): "unknown order priority; known: fifo",
    }
    for words, said in cases.items():
        result = run(trace, "--world", world, *words)
        assert result.exit_code == 2, result.output
        assert said in result.output
    missing = run(trace, "--world", world.with_name("none.yaml"))
    assert missing.exit_code == 74
    assert "cannot be read" in missing.output


def test_without_a_world_there_is_one_trace_and_a_number_of_nodes(files: tuple[Path, Path]) -> None:
    _, trace = files
    assert "--nodes says how many nodes" in run(trace).output
    assert "several traces need a world" in run(trace, trace, "--nodes", "5").output


def test_the_list_of_policies_has_those_of_worlds() -> None:
    listed = CliRunner().invoke(main, ["policies"]).output
    for name, policy in world_policies().items():
        assert f"{name:<15} in a world: {policy.about}" in listed
