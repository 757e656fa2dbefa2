"""Reasons why something cannot run in a sandbox, in the words that they have without one."""

from pathlib import Path

import pytest

from hanse.live.backends.interface import Stream
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.sandbox import SandboxMode, namespace_problem
from hanse.model.messages import Outcome
from tests.live.backends.desk import Desk, launch, read, with_desk
from tests.live.backends.places import NODES, run, shell

pytestmark = [
    pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem())),
    pytest.mark.parametrize("mode", ["namespace", "bwrap"]),
]
MISSING = "No such file or directory"


@pytest.mark.parametrize(
    ("payload", "code", "note"),
    [
        (run("no-such-program"), 127, f"cannot run no-such-program: {MISSING}"),
        (run("a: b\nc"), 127, f"cannot run a: b\nc: {MISSING}"),
        (run("/" + 1_000 * "a/"), 127, f"cannot run /{44 * 'a/'}a: {MISSING}"),
        (run("/etc/passwd"), 126, "cannot run /etc/passwd: Permission denied"),
        (run("true", workdir="/no/place"), 126, f"cannot enter the working directory /no/place: {MISSING}"),
        (run("missing", env=(("LD_PRELOAD", "/no.so"),)), 127, f"cannot run missing: {MISSING}"),
    ],
    ids=["missing", "odd", "long", "forbidden", "directory", "loader"],
)
def test_what_cannot_run_says_why(
    place: Path, mode: SandboxMode, payload: bytes, code: int, note: str
) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(payload))
        assert (end.outcome, end.exit_code, end.note) == (Outcome.FAILED, code, note)
        assert end.usage is None
        desk.forget()
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: ProcessBackend(place, "north", NODES, sandbox=mode), story)


@pytest.mark.parametrize("words", ["execvp true: No such file or directory", "Can't chdir to /: x", "x"])
def test_a_program_that_speaks_like_bubblewrap_ends_as_it_ended(
    place: Path, mode: SandboxMode, words: str
) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell(f'echo "bwrap: {words}" >&2; exit 1')))
        assert (end.outcome, end.exit_code, end.note) == (Outcome.FAILED, 1, "")
        assert end.usage is not None

    with_desk(lambda: ProcessBackend(place, "north", NODES, sandbox=mode), story)


def test_a_program_never_has_the_descriptor_of_the_report(place: Path, mode: SandboxMode) -> None:
    """It knows its two pipes alone, whatever processes it looks at."""

    async def story(desk: Desk) -> None:
        await desk.run(launch(shell("ls -l /proc/[0-9]*/fd")))
        found = (await read(desk.backend)).decode()
        assert found.count("/fd:") >= 2
        assert len({word for word in found.split() if word.startswith("pipe:")}) <= 2

    with_desk(lambda: ProcessBackend(place, "north", NODES, sandbox=mode, user=None), story)


def test_a_sandbox_that_cannot_be_made_is_a_loss(
    place: Path, mode: SandboxMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everything else that this machine fails to set up for a task."""
    name = "hanse.live.backends.process.sandbox." + (
        "sandbox_command" if mode == "bwrap" else "namespace_command"
    )
    monkeypatch.setattr(name, lambda *_: (b"bwrap", b"--ro-bind", b"/no/such/place", b"/mnt"))

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell("exit 0")))
        assert end.outcome is Outcome.LOST
        assert end.note == f"cannot make the sandbox: Can't find source path /no/such/place: {MISSING}"
        assert b"/no/such/place" in await read(desk.backend, stream=Stream.STDERR)

    with_desk(lambda: ProcessBackend(place, "north", NODES, sandbox=mode), story)
