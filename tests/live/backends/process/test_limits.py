"""Limits that hold: memory, CPU, processes, and the sandbox."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Stream
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.cgroups import TaskLimits, choose_limits
from hanse.live.backends.process.default_memory import MemoryDefault
from hanse.live.backends.process.sandbox import SandboxMissingError
from hanse.model.attempt_key_derivation import derive_attempt_key
from hanse.model.ids import job_of, job_text
from hanse.model.messages import Outcome
from hanse.model.program import Program, encode_program
from hanse.model.resources import Resources
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, read, read_until, task, with_desk
from tests.live.backends.places import NODES, STUBBORN, alive, run, shell

MEMORY = 32 << 20
GREEDY = ("dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1")
"""A program that fills so much memory at once."""


def groups_work() -> bool:
    return choose_limits("auto", Path("/hanse-test")).driver != "rlimit"


GROUPS_ONLY = pytest.mark.skipif(not groups_work(), reason="no control groups can be written here")
BWRAP_ONLY = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def sandboxed(place: Path) -> ProcessBackend:
    return ProcessBackend(place, "north", NODES, sandbox="bwrap")


@GROUPS_ONLY
def test_too_much_memory_is_said_to_be_that(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        end = await desk.run(launch(shell(f"{' '.join(GREEDY)}; exit 9"), size=Resources(1_000, MEMORY)))
        # version 1 kills one process, and its parent goes on; version 2 kills the whole task
        code = -9 if desk.backend.driver == "v2" else 9
        assert (end.outcome, end.exit_code, end.note) == (Outcome.FAILED, code, "out of memory")
        assert end.usage is not None
        assert MEMORY // 2 < end.usage.memory <= MEMORY

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


@GROUPS_ONLY
def test_one_process_that_takes_too_much_is_killed(place: Path) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run(*GREEDY), size=Resources(1_000, MEMORY)))
        assert (end.outcome, end.exit_code, end.note) == (Outcome.FAILED, -9, "out of memory")

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


@GROUPS_ONLY
def test_memory_that_was_not_asked_for_is_limited(place: Path) -> None:
    """By its CPUs' share of the node's, or by the league's setting."""
    nodes = (NodeConfig(Resources(cpu=4_000, memory=1 << 30)),)
    hungry = run("dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1")

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(hungry, size=Resources(cpu=1_000)))
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, -9)
        assert end.note == "out of memory (256 MiB, the limit without --mem)"
        assert (await desk.run(launch(hungry, 1, size=Resources(cpu=2_000)))).outcome is Outcome.SUCCEEDED
        assert (await desk.run(launch(hungry, 2, size=Resources()))).outcome is Outcome.SUCCEEDED
        asked = await desk.run(launch(hungry, 3, size=Resources(1_000, MEMORY)))
        assert asked.note == "out of memory"

    async def room(desk: Desk) -> None:
        assert (await desk.run(launch(hungry, 4, size=Resources(cpu=1_000)))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: ProcessBackend(place, "north", nodes), story)
    with_desk(lambda: ProcessBackend(place, "north", nodes, memory_default=1 << 30), room)


def test_the_limit_of_memory_that_was_not_asked_for() -> None:
    small, large = NodeConfig(Resources(4_000, 128 << 20)), NodeConfig(Resources(4_000, 64 << 30))
    rule = MemoryDefault((small, large))
    assert rule.limit(1, Resources(cpu=1_000)) == 16 << 30
    assert rule.limit(1, Resources(cpu=10)) == 256 << 20
    assert rule.limit(1, Resources()) == rule.limit(1, Resources(cpu=8_000)) == 64 << 30
    assert rule.limit(0, Resources(cpu=1_000)) == 128 << 20
    assert rule.limit(1, Resources(1_000, 5)) == 0
    assert MemoryDefault((small,), 1 << 20).limit(0, Resources(cpu=1_000)) == 1 << 20


def test_without_groups_one_process_cannot_take_too_much(place: Path) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run(*GREEDY), size=Resources(1_000, MEMORY)))
        assert end.outcome is Outcome.FAILED
        assert b"memory exhausted" in await read(desk.backend, stream=Stream.STDERR)

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver="rlimit"), story)


def test_enough_memory_is_enough(place: Path) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run(*GREEDY), size=Resources(1_000, 512 << 20)))
        assert (end.outcome, end.note) == (Outcome.SUCCEEDED, "")
        assert end.usage is not None
        assert end.usage.memory > 280 << 20

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


@GROUPS_ONLY
def test_the_cpu_limit_shows_in_the_usage(place: Path) -> None:
    async def story(desk: Desk) -> None:
        spin = run("timeout", "1", "sh", "-c", "while :; do :; done")
        end = await desk.run(launch(spin, size=Resources(100, MEMORY)))
        assert end.exit_code == 124
        assert end.usage is not None
        assert 10_000 < end.usage.cpu < end.usage.run_time // 5 + 50_000

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


@GROUPS_ONLY
def test_processes_are_limited(place: Path) -> None:
    script = "i=0; while [ $i -lt 100 ]; do sleep 3600 & i=$((i+1)); done; echo all of them"

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell(script)))
        assert end.outcome is Outcome.FAILED
        assert await read(desk.backend) == b""
        assert b"fork" in await read(desk.backend, stream=Stream.STDERR)

    with_desk(lambda: ProcessBackend(place, "north", NODES, pids_max=20), story)


@GROUPS_ONLY
def test_a_fork_bomb_is_held_and_ended(place: Path) -> None:
    """Two generations of everything, always: no walk over processes would ever catch it up."""
    script = "bomb() { bomb | bomb & }; trap '' TERM; bomb 2>/dev/null; echo set; exec sleep 3600"

    async def story(desk: Desk) -> None:
        desk.start(launch(shell(script)))
        await read_until(desk.backend, b"set")
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.SUCCEEDED
        desk.stop(grace=0)
        assert (await desk.end_of()).outcome is Outcome.CANCELLED

    with_desk(lambda: ProcessBackend(place, "north", NODES, pids_max=64), story)


def test_what_is_not_limited_is_said(place: Path) -> None:
    backend = ProcessBackend(place, "north", NODES, driver="rlimit")
    assert any("CPU time is not limited" in warning for warning in backend.warnings)


@GROUPS_ONLY
def test_nobody_takes_away_the_groups_of_a_daemon_at_work(place: Path) -> None:
    async def story(desk: Desk) -> None:
        ProcessBackend(place, "north", NODES)  # as a second daemon would, before it is refused
        assert (await desk.run(launch(run("true")))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def test_no_groups_means_no_limits_of_theirs() -> None:
    assert TaskLimits("rlimit").groups(Resources(1_000, MEMORY), 9) == ()


# --- the sandbox -----------------------------------------------------------------------------------------


def test_a_sandbox_that_is_not_installed_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(SandboxMissingError, match="install it"):
        sandboxed(place)


@BWRAP_ONLY
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as somebody else")
def test_a_sandbox_that_could_not_reach_its_tasks_is_refused(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    with pytest.raises(SandboxMissingError, match="may not enter"):
        sandboxed(place / "closed" / "tasks")
    ProcessBackend(place / "closed" / "tasks", "north", NODES, sandbox="bwrap", user=None)


@BWRAP_ONLY
def test_in_the_sandbox_there_is_little_to_see(place: Path) -> None:
    secret = place / "secret"
    secret.write_text("x")
    secret.chmod(0o644)
    script = (
        'cat "$SECRET"; ls /root /home /srv; touch /usr/x; echo "processes" /proc/[0-9]*; '
        'grep -E "^(CapEff|NoNewPrivs|Uid)" /proc/self/status; pwd; echo done > file; cat file; ls -d /tmp/*'
    )

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell(script, SECRET=str(secret))))
        out = (await read(desk.backend)).decode()
        complaints = (await read(desk.backend, stream=Stream.STDERR)).decode()
        assert end.usage is not None
        assert complaints.count("No such file") >= 4
        assert "Read-only file system" in complaints
        assert int(out.partition("CapEff:")[2].split()[0], 16) == 0
        assert out.count("/proc/") <= 4
        if os.geteuid() == 0:
            assert "65534" in out
        home = place / "work" / f"{task(0)}.1"
        assert f"{home}\ndone\n" in out
        assert (home / "file").read_text() == "done\n"

    with_desk(lambda: sandboxed(place), story)


@BWRAP_ONLY
def test_a_key_gets_into_the_sandbox(place: Path) -> None:
    secret = b"s" * 32

    async def story(desk: Desk) -> None:
        await desk.run(launch(encode_program(Program(("cat",), secret=secret))))
        key = derive_attempt_key(secret, job_text(job_of(task(0))), 0, 1)
        assert (await read(desk.backend)).decode() == key.hex()

    with_desk(lambda: sandboxed(place), story)


@BWRAP_ONLY
def test_in_the_sandbox_there_is_no_network(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # bash knows /dev/tcp; the same without the sandbox proves that the test can fail
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"

        async def story(desk: Desk) -> None:
            await desk.run(launch(run("bash", "-c", script)))
            inside = isinstance(desk.backend, ProcessBackend) and desk.backend.sandbox == "bwrap"
            assert await read(desk.backend) == (b"" if inside else b"reached\n")

        with_desk(lambda: sandboxed(place), story)
        with_desk(lambda: ProcessBackend(place / "open", "north", NODES), story)


@BWRAP_ONLY
@pytest.mark.parametrize("code", [0, 9])
def test_exit_codes_come_out_of_the_sandbox(place: Path, code: int) -> None:
    async def story(desk: Desk) -> None:
        assert (await desk.run(launch(shell(f"exit {code}")))).exit_code == code

    with_desk(lambda: sandboxed(place), story)


@BWRAP_ONLY
def test_a_sandboxed_task_can_save_its_work(place: Path) -> None:
    script = "trap 'echo saved; exit 5' TERM; echo set; while :; do sleep 0.05; done"

    async def story(desk: Desk) -> None:
        desk.start(launch(shell(script)))
        await read_until(desk.backend, b"set")
        desk.stop(grace=HOUR)
        assert (await desk.end_of()).outcome is Outcome.CANCELLED
        assert b"saved" in await read(desk.backend)

    with_desk(lambda: sandboxed(place), story)


@BWRAP_ONLY
def test_a_stubborn_task_is_ended_in_its_sandbox(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(STUBBORN))
        await read_until(desk.backend, b"set")
        desk.stop(grace=SECOND // 10)
        assert (await desk.end_of()).outcome is Outcome.CANCELLED

    with_desk(lambda: sandboxed(place), story)


@BWRAP_ONLY
@GROUPS_ONLY
def test_limits_hold_in_the_sandbox(place: Path) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run(*GREEDY), size=Resources(1_000, MEMORY)))
        assert end.outcome is Outcome.FAILED
        assert end.note == "out of memory"

    with_desk(lambda: sandboxed(place), story)


@BWRAP_ONLY
def test_a_sandboxed_task_dies_with_its_supervisor(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell("echo set; exec sleep 3600")))
        await read_until(desk.backend, b"set")
        record = (place / "records" / f"{task(0)}.1").read_bytes()
        supervisor = int.from_bytes(record[12:16], "little")
        assert alive(supervisor)
        os.kill(supervisor, 9)
        assert (await desk.end_of()).outcome is Outcome.LOST

    with_desk(lambda: sandboxed(place), story)
