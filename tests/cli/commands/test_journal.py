"""``hanse journal``: what is said of sound, damaged, missing and busy journals, and to programs."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hanse.cli.commands import journal as journal_module
from hanse.cli.journal_report import repair_text, verdict_text
from hanse.cli.main import hanse, run
from hanse.client.contexts import Context, save_context
from hanse.client.exit_codes import ExitCode
from hanse.live.journal.journal import Journal
from hanse.live.journal.repair import JournalProblem, RepairReport, VerifyReport
from hanse.live.recovery import LOST_RECORDS_FILE
from hanse.security.home import Home

RECORDS = 40


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with the journal of b1: where commands look if nobody says."""
    made = Home(tmp_path / "home")
    monkeypatch.setenv("HANSE_HOME", str(made.path))
    journal, _ = Journal.open(made.member("b1") / "journal")
    for number in range(RECORDS):
        journal.append(b"record %d" % number * 20)
        journal.commit()
    journal.close()
    return made


def damage(home: Home, where: Callable[[int], int] = lambda written: written // 2) -> Path:
    segment = min((home.member("b1") / "journal").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[where(len(bytes(content).rstrip(b"\0")))] ^= 0x40
    segment.write_bytes(content)
    return segment


def test_a_sound_journal(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    del home
    assert run(["journal", "verify", "b1"]) == ExitCode.OK
    told = capfd.readouterr().out
    assert told == "The journal of b1 is sound: records 1 to 40 in 41 blocks, 1 segment and 0 snapshots.\n"
    assert run(["journal", "verify", "b1", "--json"]) == ExitCode.OK
    said = json.loads(capfd.readouterr().out)
    assert (said["member"], said["sound"], said["verdict"]["last"]) == ("b1", True, RECORDS)
    assert run(["journal", "repair", "b1", "--yes"]) == ExitCode.OK
    assert "Nothing is wrong with the journal of b1 (records 1 to 40)" in capfd.readouterr().out
    assert run(["journal", "repair", "b1", "--yes", "--json"]) == ExitCode.OK
    assert json.loads(capfd.readouterr().out)["lost"] is False


def test_a_damaged_journal_names_its_cure(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    segment = damage(home)
    assert run(["journal", "verify", "b1"]) == ExitCode.FAILED
    told = capfd.readouterr().out
    assert f"The journal of b1 is damaged: {segment.name} at byte " in told
    assert f"'hanse journal repair b1 --home {home.path}'" in told
    assert "Problem(" not in told
    assert run(["journal", "verify", "b1", "--json"]) == ExitCode.FAILED
    assert json.loads(capfd.readouterr().out)["verdict"]["problem"]["file"] == segment.name
    assert run(["journal", "repair", "b1", "--yes"]) == ExitCode.OK
    told = capfd.readouterr().out
    assert told.startswith("The journal of b1 can be used again. Kept: records 1 to ")
    assert "Lost, with all they did: records " in told
    assert f"Set aside in damaged-1, inside the journal: {segment.name}." in told
    assert "b1 will not start under this name" in told
    assert "Lost" in (home.member("b1") / LOST_RECORDS_FILE).read_text()
    assert run(["journal", "verify", "b1"]) == ExitCode.OK
    assert run(["journal", "repair", "b1", "--yes"]) == ExitCode.OK  # nothing is wrong with it now
    assert (home.member("b1") / LOST_RECORDS_FILE).exists(), "what was lost stays lost"


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_who_does_not_say_yes_changes_nothing(home: Home, answer: str) -> None:
    segment = damage(home)
    before = segment.read_bytes()
    asked = CliRunner().invoke(hanse, ["journal", "repair", "b1"], input=answer)
    assert asked.exit_code == 1
    assert "Go on?" in asked.output
    assert "nothing was changed" in asked.output
    assert segment.read_bytes() == before
    assert not (home.member("b1") / LOST_RECORDS_FILE).exists()


def test_a_running_member_is_refused_before_the_question(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    journal, _ = Journal.open(home.member("b1") / "journal")
    try:
        assert run(["journal", "repair", "b1"]) == ExitCode.FILE
        told = capfd.readouterr()
        assert f"is in use by process {os.getpid()}; stop it first" in told.err
        assert "Go on?" not in told.out + told.err
        assert run(["journal", "verify", "b1"]) == ExitCode.OK
        assert "b1 runs: what it is writing now was not checked." in capfd.readouterr().out
    finally:
        journal.close()


def test_a_repair_that_is_cut_off_lets_nobody_start(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(home)

    def killed(_: Path) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "repair", killed)
        assert run(["journal", "repair", "b1", "--yes"]) == 9
    losses = home.member("b1") / LOST_RECORDS_FILE
    assert "a repair was begun" in losses.read_text()
    assert run(["journal", "repair", "b1", "--yes"]) == ExitCode.OK
    assert "Lost" in losses.read_text()


def test_a_repair_that_was_cut_off_and_lost_nothing(home: Home) -> None:
    losses = home.member("b1") / LOST_RECORDS_FILE
    losses.write_text(f"{journal_module.REPAIR_BEGUN}\n")
    assert run(["journal", "repair", "b1", "--yes"]) == ExitCode.OK
    assert not losses.exists()


@pytest.mark.parametrize("verb", ["verify", "repair", "replay"])
def test_what_is_not_there_is_told(home: Home, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", verb, "b2"]) == ExitCode.FILE
    assert "there are journals of: b1" in capfd.readouterr().err
    (home.member("b3") / "journal").mkdir(parents=True)
    (home.member("b4") / "journal").mkdir(parents=True)
    home.league_file.write_text("brokers: [{name: b3}]\nclusters: [{name: c, nodes: [{cpus: 1}]}]\n")
    assert run(["journal", verb, "b3"]) == ExitCode.FILE
    told = capfd.readouterr()
    assert f"there is no journal in {home.member('b3') / 'journal'}" in told.err
    assert "Go on?" not in told.out + told.err
    assert run(["journal", verb, "b3", "--home", str(home.path / "nowhere")]) == ExitCode.FILE
    assert "name the home with --home" in capfd.readouterr().err


def test_a_context_names_the_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    save_context("mine", Context("local", str(home.path)))
    monkeypatch.setenv("HANSE_HOME", str(home.path / "nowhere"))
    assert run(["journal", "verify", "b1"]) == ExitCode.FILE
    assert run(["journal", "verify", "b1", "--context", "mine"]) == ExitCode.OK
    assert run(["--context", "mine", "journal", "verify", "b1"]) == ExitCode.OK


def test_words_of_every_kind() -> None:
    empty = VerifyReport(False, 1, 0, 0, 1, 0, 512, None)
    assert "sound: no records in 0 blocks, 1 segment and 0 snapshots. Its last 512 bytes" in verdict_text(
        "b", empty
    )
    nothing = VerifyReport(False, 1, 0, 0, 1, 0, 0, JournalProblem("1.seg", 7, "it is bad", "Mend it."))
    assert verdict_text("b", nothing) == (
        "The journal of b is damaged: 1.seg at byte 7: it is bad; no record before it can be read. Mend it."
    )
    whole = RepairReport((5, 9), 4, 9, None, False, (1, 4), ("1.seg", "2.seg"), "damaged-1")
    assert repair_text("b", whole) == (
        "The journal of b can be used again. Kept: snapshot 4 and records 5 to 9. Nothing is lost: the state "
        "is complete. The snapshot keeps what records 1 to 4 did; these records are unreadable "
        "now. Set aside in damaged-1, inside the journal: 1.seg, 2.seg."
    )
    open_end = RepairReport(None, None, 0, (1, 1), True, None, ("1.seg",), "damaged-1")
    told = repair_text("b", open_end)
    assert "Kept: no record. Lost, with all they did: record 1, and perhaps more" in told
    unknown = RepairReport((1, 3), None, 3, None, True, None, ("1.seg",), "damaged-1")
    assert "is unknown: the end is too damaged." in repair_text("b", unknown)
