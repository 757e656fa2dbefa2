"""The journals of a real league as a trace: converted, described and replayed by the command line."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hanse.cli.journal_trace_reader import JournalReader
from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from hanse.league.config import LeagueConfig
from hanse.league.file import store
from hanse.league.reader import league_from_data
from hanse.live.journal.journal import Journal
from hanse.model.events import Booted
from hanse.model.ids import job_text
from hanse.sim.traces import load
from hanse.sim.traces.formats import load_from_reader
from hanse.sim.traces.journal_jobs import NEVER_RAN, NOT_ENDED
from hanse.sim.traces.read_report import TraceError
from tests.live.harness import open_directory, running

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - name: north
    nodes: [{count: 2, cpus: 2, memory: 256MiB}]
  - name: south
    nodes: [{count: 1, cpus: 1, memory: 256MiB}]
"""
COUNTS = (1, 3, 2, 1, 4)
SECOND = 1_000_000


class Lived:
    """What is left of a league that has lived: its home, and the jobs that it ran."""

    def __init__(self, home: Path, ran: dict[str, int]) -> None:
        self.home = home
        self.ran = ran
        """Job -> tasks that ran."""


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    """Jobs of both brokers: five that succeed, one that fails, one that never runs, one that never ends."""
    with open_directory() as directory:
        with running(directory / "home", LEAGUE) as league:
            ran: dict[str, int] = {}
            for number, count in enumerate(COUNTS):
                form: dict[str, Any] = {
                    "name": f"j{number}", "count": count, "command": "sleep 0.2", "cpus": 0.5,
                    "tenant": "ann", "priority": number, "duration": "1s",
                }  # fmt: skip
                broker = f"b{1 + number % 2}"
                job = league.submit(form, broker)
                ran[job] = count
                assert league.wait(job, broker)["state"] == "succeeded"
            failed = league.submit({"command": "sleep 0.2; exit 3"}, "b2")
            assert league.wait(failed, "b2")["state"] == "failed"
            ran[failed] = 1
            lasting = league.submit({"command": "sleep 600"})
            waiting = league.submit({"command": "true", "after": [lasting]})
            league.broker().ask("POST", f"/v1/jobs/{waiting}/cancel")
            assert league.wait(waiting)["state"] == "cancelled"
            # a journal that is being written to can be read
            assert load_from_reader(JournalReader([league.home.path])).job_count == len(ran)
        yield Lived(directory / "home", ran)


def test_the_home_of_a_league_is_a_trace(lived: Lived, tmp_path: Path) -> None:
    reader = JournalReader([lived.home])
    chunk = load_from_reader(reader)
    chunk.check()
    assert reader.report.skipped == {NEVER_RAN: 1, NOT_ENDED: 1}
    assert (reader.report.bad, reader.report.disordered, reader.nodes_hint) == (0, 0, 3)
    assert dict(zip(map(job_text, chunk.job), chunk.counts().tolist(), strict=True)) == lived.ran
    assert chunk.job_count == len(COUNTS) + 1
    assert 0.2 * SECOND <= int(chunk.duration.min()) <= int(chunk.duration.max()) < 60 * SECOND
    # each was submitted when the one before had ended, by turns to two brokers: their clocks were brought
    # together
    longest = [int(chunk.tasks_of(entry).max()) for entry in range(chunk.job_count)]
    gaps = [int(gap) for gap in chunk.arrival[1:] - chunk.arrival[:-1]]
    assert all(gap >= 0.9 * ran for gap, ran in zip(gaps, longest, strict=False))
    assert chunk.cpu[:5].tolist() == [500] * 5
    assert chunk.estimate[:5].tolist() == [SECOND] * 5
    assert chunk.extra["priority"][:5].tolist() == list(range(5))
    assert [chunk.name(index) for index in chunk.user[:5]] == ["ann"] * 5
    assert [chunk.name(index) for index in chunk.extra["status"]] == ["succeeded"] * 5 + ["failed"]


def test_convert_and_replay_keep_the_counts(lived: Lived, tmp_path: Path) -> None:
    out, result, direct = tmp_path / "lived.csv", tmp_path / "result.json", tmp_path / "direct.json"
    assert run(["trace", "convert", str(lived.home), str(out)]) == ExitCode.OK
    chunk = load(out)
    assert (chunk.job_count, chunk.task_count) == (len(lived.ran), sum(lived.ran.values()))
    first = out.read_text(encoding="utf-8").splitlines()[0]
    assert int(first.split("unix_start=")[1].split()[0]) > 1_600_000_000
    options = ["--nodes", "3", "--clusters", "1", "--brokers", "1", "--policy", "central,hanse", "--json"]
    assert run(["replay", str(out), *options, str(result)]) == ExitCode.OK
    assert run(["replay", str(lived.home), *options, str(direct)]) == ExitCode.OK
    for written in (result, direct):
        for row in json.loads(written.read_text(encoding="utf-8")):
            assert (row["jobs"], row["tasks"]) == (len(lived.ran), sum(lived.ran.values()))
            assert row["complete"]


def test_one_brokers_directory_tells_its_own_jobs(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("b1", "b2"):
        mine = sum(job.startswith(f"{name[1]}-") for job in lived.ran)
        for place in (lived.home / name, lived.home / name / "journal"):
            assert load_from_reader(JournalReader([place])).job_count == mine
    both = [str(lived.home / "b1"), "--with", str(lived.home / "b2")]
    assert run(["trace", "describe", *both, "--json"]) == ExitCode.OK
    assert json.loads(capfd.readouterr().out)["jobs"] == len(lived.ran)


def test_what_cannot_be_read_is_told_with_status_74(
    lived: Lived, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    alone = shutil.copytree(lived.home / "b1", tmp_path / "alone" / "b1")
    cases = {
        tmp_path / "empty": "without a journal",
        tmp_path / "absent": "does not exist",
        alone: "Keep league.yaml beside",
        lived.home / "north": "no broker's journal is there",
    }
    for path, sentence in cases.items():
        assert run(["trace", "describe", str(path)]) == ExitCode.FILE
        assert sentence in capfd.readouterr().err
        assert run(["replay", str(path), "--nodes", "9", "--clusters", "1"]) == ExitCode.FILE
        assert sentence in capfd.readouterr().err
    with pytest.raises(TraceError, match="given twice"):
        JournalReader([lived.home, lived.home / "b1"])


def test_a_bad_record_is_counted_and_what_follows_is_not_guessed(lived: Lived, tmp_path: Path) -> None:
    home = shutil.copytree(lived.home, tmp_path / "home", ignore=shutil.ignore_patterns("tasks"))
    journal, _ = Journal.open(home / "b1" / "journal", create=False)
    journal.append(b"\x93 no event")
    journal.append(b"nor this")
    journal.commit()
    journal.close()
    reader = JournalReader([home])
    assert load_from_reader(reader).job_count == len(lived.ran)
    assert (reader.report.bad, reader.report.first[0].line) == (1, journal.position - 1)
    assert any("is not read" in note for note in reader.report.notes)
    assert run(["trace", "describe", str(home), "--strict"]) == ExitCode.FAILED


@pytest.mark.parametrize("same_boot", [True, False])
def test_clocks_are_brought_together_by_the_boot_or_by_the_time_of_the_last_write(
    tmp_path: Path, same_boot: bool
) -> None:
    """b2 was founded 1,000 s after b1; its last event was 5 s after b1's, and its file written 7 s after."""
    league = league_from_data(yaml.safe_load(LEAGUE))
    assert isinstance(league, LeagueConfig)
    store(tmp_path / "league.yaml", league)
    for name, founded, last, boot in (("b1", 0, 2_000, "here"), ("b2", 1_000, 1_005, "here")):
        member = tmp_path / name
        (member / "journal").mkdir(parents=True)
        saved = {"boot": boot if same_boot else name, "offset": -founded * SECOND}
        (member / "clock.json").write_text(json.dumps(saved), encoding="utf-8")
        journal, _ = Journal.open(member / "journal")
        journal.append(msgspec.msgpack.encode(Booted(last * SECOND, 1, 7)))
        journal.commit()
        journal.close()
        for path in (member / "journal").glob("*.seg"):
            os.utime(path, (2_000_000 if name == "b1" else 2_000_007,) * 2)
    shifts = JournalReader([tmp_path])._shifts
    assert shifts["b2"] - shifts["b1"] == (1_000 if same_boot else 1_002) * SECOND
    assert shifts["b1"] == 1_998_000 * SECOND  # the least lateness is the best guess
