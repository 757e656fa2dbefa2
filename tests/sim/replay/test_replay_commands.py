"""The commands as a user runs them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from hanse.cli.commands.replay import main
from hanse.client.exit_codes import ExitCode
from hanse.sim.baselines.task_level import engine
from hanse.sim.baselines.task_level.sparrow import sparrow
from hanse.sim.replay import registry
from hanse.sim.replay.metrics import TIME_FIELDS
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload
from hanse.sim.replay.sweep import read_finished_runs

PROMISED = (
    "policy", "order", "seed", "tasks", "jobs", "nodes", "load", "delay_mean", "delay_p50", "delay_p90",
    "delay_p99", "delay_p999", "short_delay_p99", "jct_mean", "makespan", "utilisation", "messages_per_task",
    "rejects_per_task", "substitutions_per_task", "decision_us_p50", "decision_us_p99", "wall_seconds",
    "cpu_seconds", "tasks_per_cpu_second",
)  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of 60 jobs."""
    random = Random(5)
    path = tmp_path / "made.tr"
    lines = []
    for job in range(60):
        durations = [
            round(random.expovariate(1 / (1 if job % 3 else 30)), 3) for _ in range(random.randint(1, 20))
        ]
        lines.append(
            f"{job * 0.7} {len(durations)} {sum(durations) / len(durations)} " + " ".join(map(str, durations))
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def _run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def _without_times(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timed = {*TIME_FIELDS, *(f"{field}_ci95" for field in TIME_FIELDS)}
    return [
        {
            field: _without_times(value) if field == "runs" else value
            for field, value in each.items()
            if field not in timed
        }
        for each in objects
    ]


def test_a_replay_prints_a_table_and_writes_what_was_promised(trace: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    names = ",".join(registry.policies())
    code, output = _run(
        "replay", trace, "--nodes", "60", "--clusters", "3", "--brokers", "2", "--policy", names,
        "--short-cutoff", "5", "--load", "0.8", "--json", out, "--report", page,
    )  # fmt: skip
    assert code == 0, output
    objects = json.loads(out.read_text())
    assert [each["policy"] for each in objects] == list(registry.policies())
    for each in objects:
        assert set(PROMISED) <= set(each)
        assert each["load"] == pytest.approx(0.8)
        assert each["complete"] is True
        assert each["policy"] in output
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_repeats_have_intervals(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, output = _run(
        "replay",
        trace,
        "--nodes",
        "50",
        "--policy",
        "sparrow",
        "--clusters",
        "2",
        "--repeat",
        "3",
        "--seed",
        "4",
        "--json",
        out,
    )
    assert code == 0, output
    assert "±" in output
    (each,) = json.loads(out.read_text())
    assert [run["seed"] for run in each["runs"]] == [4, 5, 6]
    # what does not differ between seeds has no interval, not one of rounding errors
    assert each["messages_per_task_ci95"] == 0
    assert each["load_ci95"] == 0
    assert each["load"] == each["runs"][0]["load"]


def test_progress_without_a_terminal_is_lines_with_the_time_left(trace: Path) -> None:
    code, output = _run(
        "replay", trace, "--nodes", "40", "--clusters", "2", "--policy", "hanse", "--progress"
    )
    assert code == 0, output
    assert re.search(r"hanse seed 0: \d+ % begun, \d+ s left", output)
    assert "begun" not in _run("replay", trace, "--nodes", "40", "--clusters", "2")[1]


def test_equal_seeds_give_equal_files_under_any_hash_seed(trace: Path, tmp_path: Path) -> None:
    names = ",".join(registry.policies())
    found = []
    for hash_seed in ("1", "4242"):
        out = tmp_path / f"{hash_seed}.json"
        command = [
            sys.executable, "-m", "hanse.cli.commands.replay", "replay", str(trace), "--nodes", "40",
            "--clusters", "2", "--brokers", "2", "--policy", names, "--repeat", "2", "--json", str(out),
        ]  # fmt: skip
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        found.append(_without_times(json.loads(out.read_text())))
    assert found[0] == found[1]
    assert len(found[0]) == len(registry.policies())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--policy", "nosuch"), "unknown policy nosuch; known: "),
        (
            ("--policy", "sparrow,central", "--faults", "FAULTS"),
            "faults cannot be injected into sparrow, central",
        ),
        (("--policy", "megha", "--clusters", "50"), "too few"),
    ],
)
def test_refusals_are_sentences(
    trace: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("")
    given = [str(faults) if argument == "FAULTS" else argument for argument in arguments]
    code, output = _run("replay", trace, "--nodes", "40", *given)
    assert code == ExitCode.USAGE
    assert sentence in output
    assert "Traceback" not in output


def test_files_that_cannot_be_read_or_written_are_told_before_anything_runs(
    trace: Path, tmp_path: Path
) -> None:
    absent, nowhere = tmp_path / "absent", tmp_path / "absent" / "out"
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n")
    cases: dict[str, list[tuple[str | Path, ...]]] = {
        "replay": [
            (absent,), (picture,), (trace, "--json", nowhere), (trace, "--report", nowhere),
            (trace, "--policy", "hanse", "--faults", absent),
        ],
        "sweep": [
            (absent, "--out", tmp_path / "o"), (tmp_path, "--out", tmp_path / "o"),
            (trace, "--out", nowhere), (trace, "--out", picture), (trace, "--out", trace),
        ],
    }  # fmt: skip
    for command, words in cases.items():
        for given in words:
            before = trace.read_bytes(), picture.read_bytes()
            code, output = _run(command, *given, "--nodes", "40", "--clusters", "2")
            assert code == ExitCode.FILE, (given, output)
            assert "Traceback" not in output
            assert not (tmp_path / "o").exists()
            assert (trace.read_bytes(), picture.read_bytes()) == before, "what is no result is left alone"


@pytest.mark.parametrize(
    "words",
    [("--brokers", ""), ("--seeds", "1,x"), ("--loads", "0"), ("--brokers", "0"), ("--loads", "nan")],
)
def test_a_sweep_says_what_is_wrong_with_its_numbers(
    trace: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, output = _run("sweep", trace, "--nodes", "40", "--out", tmp_path / "o.jsonl", *words)
    assert code == ExitCode.USAGE, output
    assert "Traceback" not in output


def test_bad_rows_are_told_with_their_lines(trace: Path) -> None:
    trace.write_text(trace.read_text() + "50 2 1.0 1.0\n")
    code, output = _run("replay", trace, "--nodes", "40", "--clusters", "2")
    assert code == 0
    assert "1 rows could not be used" in output
    assert "line 61" in output


@pytest.fixture
def interrupted() -> Iterator[str]:
    """A policy under which the user presses Ctrl-C once half of the tasks have started."""

    def run(workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None) -> ReplayOutcome:
        assert progress is not None
        report = progress

        def press(begun: int) -> bool:
            if begun > workload.task_count // 2:
                os.kill(os.getpid(), signal.SIGINT)
            return report(begun)

        return sparrow(workload, settings, press)

    registry.register(registry.ReplayPolicy("interrupted", run, "sparrow, stopped by hand"))
    yield "interrupted"
    del registry._POLICIES["interrupted"]


def test_ctrl_c_leaves_a_usable_result(
    trace: Path, tmp_path: Path, interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "EVENTS_PER_REPORT", 20)
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    code, output = _run(
        "replay", trace, "--nodes", "20", "--clusters", "1", "--policy", f"central,{interrupted},pigeon",
        "--json", out, "--report", page,
    )  # fmt: skip
    assert code == 130
    assert "Stopped" in output
    whole, part = json.loads(out.read_text())
    assert (whole["policy"], whole["complete"]) == ("central", True)
    assert (part["policy"], part["complete"]) == (interrupted, False)
    assert 0 < part["jobs_ended"] < part["jobs"]
    assert part["delay_mean"] > 0
    assert "Stopped early: interrupted" in page.read_text()


def _sweep(trace: Path, out: Path, *more: str) -> tuple[int, str]:
    return _run(
        "sweep", trace, "--nodes", "40", "--clusters", "2", "--policy", "sparrow,megha", "--loads", "0.5,0.9",
        "--brokers", "1,2", "--processes", "1", "--out", out, *more,
    )  # fmt: skip


def test_a_sweep_goes_on_where_it_was_stopped(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    code, output = _sweep(trace, out)
    assert code == 0, output
    assert "8 runs, 0 of them" in output
    lines = out.read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    assert {
        (each["policy"], each["brokers"], each["target_load"]) for each in read_finished_runs(out).values()
    } == {
        (policy, brokers, load)
        for policy in ("sparrow", "megha")
        for brokers in (1, 2)
        for load in (0.5, 0.9)
    }
    # a crash left five lines and half of the sixth
    out.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    code, output = _sweep(trace, out)
    assert code == 0, output
    assert "8 runs, 5 of them" in output
    again = out.read_bytes().splitlines(keepends=True)
    assert again[:5] == lines[:5]
    assert [_figures(line) for line in again] == [_figures(line) for line in lines]
    # a changed trace is another sweep
    trace.write_text(trace.read_text() + "99 1 1.0 1.0\n")
    assert "8 runs, 0 of them" in _sweep(trace, out, "--loads", "0.5,0.9")[1]


def _figures(line: bytes) -> dict[str, Any]:
    return {field: value for field, value in json.loads(line).items() if field not in TIME_FIELDS}
