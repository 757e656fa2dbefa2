"""The root of the command line: what it lists, what it imports, how it ends."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from hanse import __version__
from hanse.cli import main
from hanse.cli.commands import contexts
from hanse.cli.main import COMMANDS, CommandEntry, run
from hanse.client.exit_codes import ExitCode


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def planted(monkeypatch: pytest.MonkeyPatch, act: object) -> None:
    """Make ``hanse planted`` do something."""

    @click.command("planted")
    def command() -> None:
        assert callable(act)
        act()

    monkeypatch.setattr(contexts, "planted_command", command, raising=False)
    monkeypatch.setitem(COMMANDS, "planted", CommandEntry("contexts", "planted_command", "For this test."))


def test_help_lists_commands_and_imports_none() -> None:
    code = (
        "import sys; from hanse.cli.main import run; status = run(['--help']); "
        "heavy = [m for m in ('numpy', 'rich', 'msgspec', 'hanse.core.broker.broker') if m in sys.modules]; "
        "print('imported:', heavy); sys.exit(status)"
    )
    done = python(code)
    assert done.returncode == ExitCode.OK
    assert "imported: []" in done.stdout
    lines = [line.split()[0] for line in done.stdout.split("\n") if line.startswith("  ") and line.split()]
    for name in ("chaos", "demo", "submit", "up", "config"):
        assert lines.count(name) == 1, name


def test_sections_name_commands_and_none_twice() -> None:
    named = [name for _, names in main.SECTIONS for name in names]
    assert len(set(named)) == len(named)
    assert set(named) <= set(COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == ExitCode.OK
    assert __version__ in capsys.readouterr().out


def test_every_listed_command_is_there() -> None:
    context = click.Context(main.hanse)
    for name in main.hanse.list_commands(context):
        command = main.hanse.get_command(context, name)
        assert command is not None
        assert command.help


def test_a_command_without_its_module_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "ghost", CommandEntry("ghost_command", "ghost", "Is not there."))
    context = click.Context(main.hanse)
    assert "ghost" not in main.hanse.list_commands(context)
    assert main.hanse.get_command(context, "ghost") is None
    assert run(["ghost"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["choas"], "Did you mean 'chaos'?"),
        (["xyzzy"], "There are: "),
        (["demo", "--sed", "1"], "--sed"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--why", "nobody"], "there is no job 'nobody'"),
        (["chaos", "--explain"], "--explain needs --seed"),
    ],
)
def test_mistakes_get_a_sentence(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--json", str(tmp_path / "missing" / "report.json")]) == ExitCode.FILE
    said = capsys.readouterr().err
    assert "missing" in said
    assert "Traceback" not in said


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    planted(monkeypatch, interrupt)
    assert run(["planted"]) == ExitCode.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bug() -> None:
        raise AssertionError("room leaks")

    planted(monkeypatch, bug)
    assert run(["planted"]) == ExitCode.BUG
    said = capsys.readouterr().err
    assert "room leaks" in said
    assert "bug in Hanse" in said


@pytest.mark.parametrize(("left", "status"), [(None, 0), (0, 0), (1, 1), (3, 3), ("sad", 1)])
def test_a_command_may_leave(left: object, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        raise SystemExit(left)

    planted(monkeypatch, leave)
    assert run(["planted"]) == status


def test_asked_for_failure_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise click.ClickException("not today")

    planted(monkeypatch, fail)
    assert run(["planted"]) == ExitCode.FAILED
