"""Tasks as real processes: what they are given, how they end, and what of them is left."""

import os
import pwd
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hanse.live.backends.interface import Stream
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.cgroups import choose_limits
from hanse.model.ids import job_of, job_text
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import HOUR, Desk, launch, read, read_until, task, with_desk
from tests.live.backends.places import (
    NODES,
    STUBBORN,
    alive,
    groups_in,
    groups_of,
    processes_of,
    run,
    shell,
    wait_all_gone,
)

IS_ROOT = os.geteuid() == 0
ROOT_ONLY = pytest.mark.skipif(not IS_ROOT, reason="only root can run tasks as somebody else")
OF_THE_C_LIBRARY = 3 << 31
"""Signals 32 and 33, which posix_spawn ignores and the C library sets when it needs them."""
DAEMONISE = """
mkfifo born
(setsid sh -c 'setsid sh -c "trap \\"\\" TERM HUP; echo \\$\\$ > born; while :; do sleep 3600; done" &' &)
read pid < born
echo "pid $pid"
"""
"""A shell that puts a process far away from itself: two forks, two sessions, deaf to signals."""


def plain(place: Path) -> Callable[[], ProcessBackend]:
    return lambda: ProcessBackend(place, "north", NODES)


def printed(text: bytes) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.decode().splitlines())


# --- what a task is given --------------------------------------------------------------------------------


def test_arguments_arrive_as_they_were_written(place: Path) -> None:
    words = ("", "two words", "$HOME", "*", "ärger", "a\nb", "-n")

    async def story(desk: Desk) -> None:
        await desk.run(launch(run("/usr/bin/printf", "[%s]", *words)))
        assert (await read(desk.backend)).decode() == "".join(f"[{word}]" for word in words)

    with_desk(plain(place), story)


def test_the_environment_is_its_own_and_says_who_it_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    env = (("COLOUR", "blue=green"), ("HANSE_NODE", "7"), ("HANSE_TASK", "9"))

    async def story(desk: Desk) -> None:
        await desk.run(launch(run("env", env=env), 4, size=Resources(cpu=1_250, memory=64 << 20)))
        found = printed(await read(desk.backend, 4))
        assert found.pop("HOME") == str(place / "work" / f"{task(4)}.1")
        assert found == {
            "COLOUR": "blue=green",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HANSE_CLUSTER": "north",
            "HANSE_NODE": "0",
            "HANSE_JOB": job_text(job_of(task(4))),
            "HANSE_TASK": "4",
            "HANSE_ATTEMPT": "1",
            "HANSE_CPUS": "1.25",
            "HANSE_GPUS": "0",
        }

    with_desk(plain(place), story)


def test_it_works_in_a_directory_of_its_own_that_goes_with_it(place: Path) -> None:
    script = "pwd; mkdir -p a/b/c; echo x > a/b/c/file; ln -s /etc link; chmod 0 a; ls -A"

    async def story(desk: Desk) -> None:
        assert (await desk.run(launch(shell(script)))).exit_code == 0
        home = place / "work" / f"{task(0)}.1"
        assert (await read(desk.backend)).decode().split() == [str(home), "a", "link"]
        assert home.is_dir()
        desk.forget()

    with_desk(plain(place), story)
    wait_all_gone(place)  # when the launcher has done all that it was asked
    assert list((place / "work").iterdir()) == []
    assert Path("/etc/passwd").exists()


def test_it_works_where_it_is_told_to(place: Path) -> None:
    there = place / "elsewhere"
    there.mkdir()

    async def story(desk: Desk) -> None:
        await desk.run(launch(run("pwd", workdir=str(there))))
        assert (await read(desk.backend)).decode() == f"{there}\n"

    with_desk(plain(place), story)
    assert there.is_dir()


def test_it_has_no_input_and_no_files_of_ours(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(shell("readlink /proc/self/fd/0; ls /proc/self/fd | wc -l")))
        # 0, 1, 2, and the one that ls has opened to list them
        assert (await read(desk.backend)).decode().split() == ["/dev/null", "4"]

    with_desk(plain(place), story)


def test_it_ignores_no_signal_that_the_daemon_ignores(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")))
        masks = [int(mask, 16) & ~OF_THE_C_LIBRARY for mask in (await read(desk.backend)).split()[1::2]]
        assert masks == [0, 0]

    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # besides SIGPIPE, which Python ignores
    try:
        with_desk(plain(place), story)
    finally:
        signal.signal(signal.SIGUSR1, before)


@ROOT_ONLY
def test_it_is_not_root(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("grep", "-E", "^(Uid|Gid|Groups|CapEff|NoNewPrivs):", "/proc/self/status")))
        facts = {
            line.split()[0]: line.split()[1:] for line in (await read(desk.backend)).decode().splitlines()
        }
        nobody = pwd.getpwnam("nobody")
        assert facts["Uid:"] == [str(nobody.pw_uid)] * 4
        assert facts["Gid:"] == [str(nobody.pw_gid)] * 4
        assert set(facts["Groups:"]) == {str(nobody.pw_gid)}
        assert int(facts["CapEff:"][0], 16) == 0
        assert facts["NoNewPrivs:"] == ["1"]

    with_desk(plain(place), story)


@ROOT_ONLY
def test_it_cannot_touch_the_records(place: Path) -> None:
    async def story(desk: Desk) -> None:
        script = (
            'cd "$PLACE" && ls records; cat guard; echo x >> launcher.log; ls output; kill -9 "$PPID"; true'
        )
        end = await desk.run(launch(shell(script, PLACE=str(place))))
        assert end.outcome is Outcome.SUCCEEDED
        assert await read(desk.backend) == b""
        assert (await read(desk.backend, stream=Stream.STDERR)).count(b"denied") >= 4

    with_desk(plain(place), story)


@ROOT_ONLY
def test_it_is_whom_it_was_asked_to_be(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("id", "-u")))
        assert await read(desk.backend) == b"12345\n"

    with_desk(lambda: ProcessBackend(place, "north", NODES, user=12345), story)


def test_users_that_are_not_there_are_refused(place: Path) -> None:
    with pytest.raises(ValueError, match="no-such-user"):
        ProcessBackend(place, "north", NODES, user="no-such-user")


# --- how it ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
def test_a_signal_is_a_failure(place: Path, number: signal.Signals) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell(f"kill -{number.value} $$")))
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, -number)

    with_desk(plain(place), story)


@pytest.mark.parametrize(
    ("payload", "code", "note"),
    [
        (run("no-such-program"), 127, "cannot run no-such-program: No such file or directory"),
        (run("/etc/passwd"), 126, "cannot run /etc/passwd: Permission denied"),
        (run("true", workdir="/no/such/place"), 126, "working directory /no/such/place: No such file"),
        (b"\x00", 126, "the payload is not a command"),
    ],
)
def test_what_cannot_run_says_why(place: Path, payload: bytes, code: int, note: str) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(payload))
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, code)
        assert note in end.note
        assert end.usage is None
        assert desk.starts == set()
        desk.forget()

    with_desk(plain(place), story)


@ROOT_ONLY
def test_a_directory_that_the_task_may_not_enter(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run("true", workdir=str(closed))))
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, 126)
        assert "Permission denied" in end.note

    with_desk(plain(place), story)


def test_a_command_that_no_kernel_takes(place: Path) -> None:
    async def story(desk: Desk) -> None:
        too_long = await desk.run(launch(run("true", "x" * (5 << 20))))
        assert (too_long.outcome, too_long.note) == (Outcome.FAILED, "the command is too long")
        large = await desk.run(launch(run("true", "x" * (1 << 20)), 1))
        assert (large.outcome, large.exit_code) == (Outcome.FAILED, 126)
        assert "Argument list too long" in large.note

    with_desk(plain(place), story)


def test_a_records_directory_that_is_gone_loses_the_attempt_and_says_so(place: Path) -> None:
    async def story(desk: Desk) -> None:
        (place / "records").rmdir()
        end = await desk.run(launch(run("true")))
        assert end.outcome is Outcome.LOST
        assert "cannot write its record" in end.note
        (place / "records").mkdir(mode=0o700)
        (place / "output").rename(place / "away")
        end = await desk.run(launch(run("true"), 1))
        assert (end.outcome, end.note) == (Outcome.SUCCEEDED, "")
        end = await desk.run(launch(run("echo", "x"), 3))
        assert (end.outcome, end.note) == (Outcome.SUCCEEDED, "stdout was cut")
        (place / "away").rename(place / "output")
        assert (await desk.run(launch(run("true"), 2))).outcome is Outcome.SUCCEEDED

    with_desk(plain(place), story)


def test_a_task_that_is_asked_to_stop_can_save_its_work(place: Path) -> None:
    script = "trap 'echo saved; exit 5' TERM; echo set; while :; do sleep 0.05; done"

    async def story(desk: Desk) -> None:
        desk.start(launch(shell(script)))
        await read_until(desk.backend, b"set")
        desk.stop(grace=HOUR)
        end = await desk.end_of()
        assert (end.outcome, end.exit_code) == (Outcome.CANCELLED, 5)
        assert b"saved" in await read(desk.backend)

    with_desk(plain(place), story)


def test_children_that_save_are_waited_for_when_their_shell_is_gone(place: Path) -> None:
    script = "(trap 'sleep 0.3; echo saved; exit' TERM; echo set; while :; do sleep 0.05; done) & wait"

    async def story(desk: Desk) -> None:
        desk.start(launch(shell(script)))
        await read_until(desk.backend, b"set")
        desk.stop(grace=HOUR)
        assert (await desk.end_of()).outcome is Outcome.CANCELLED
        assert b"saved" in await read(desk.backend)

    with_desk(plain(place), story)


def test_a_halted_task_hears_a_stop(place: Path) -> None:
    script = "trap 'echo saved; exit' TERM; echo set; kill -STOP $$; while :; do sleep 0.05; done"

    async def story(desk: Desk) -> None:
        desk.start(launch(shell(script)))
        await read_until(desk.backend, b"set")
        desk.stop(grace=HOUR)
        await desk.end_of()
        assert b"saved" in await read(desk.backend)

    with_desk(plain(place), story)


# --- what is left of it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_what_a_task_daemonised_dies_with_it(place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell(DAEMONISE)))
        assert end.outcome is Outcome.SUCCEEDED
        pid = int((await read(desk.backend)).split()[1])
        assert not alive(pid)

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_what_a_task_daemonised_dies_when_it_is_stopped(place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell(DAEMONISE + "exec sleep 3600")))
        pid = int((await read_until(desk.backend, b"pid ")).split()[1])
        assert alive(pid)
        desk.stop(grace=0)
        assert (await desk.end_of()).outcome is Outcome.CANCELLED
        assert not alive(pid)

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


def test_usage_counts_children(place: Path) -> None:
    spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell(f"({spin}) & ({spin}) & wait")))
        assert end.usage is not None
        assert 20_000 < end.usage.cpu <= 2 * end.usage.run_time + 100_000
        assert 100_000 < end.usage.memory < 64 << 20

    with_desk(plain(place), story)


@pytest.mark.skipif(
    choose_limits("auto", Path("/hanse-test")).driver == "rlimit", reason="no control groups here"
)
def test_usage_counts_children_that_nobody_waited_for(place: Path) -> None:
    """Whoever ignores SIGCHLD has children that leave no trace but in the count of their group."""
    script = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    while time.process_time() < 0.5:
        pass
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass  # it is gone, and was not waited for
"""

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run(sys.executable, "-S", "-c", script)))
        assert end.outcome is Outcome.SUCCEEDED
        assert end.usage is not None
        assert end.usage.cpu > 500_000

    with_desk(lambda: ProcessBackend(place, "north", NODES, user=None), story)


def test_a_second_daemon_is_refused(place: Path) -> None:
    async def story(desk: Desk) -> None:
        second = ProcessBackend(place, "north", NODES)
        with pytest.raises(OSError, match="another daemon already serves"):
            await second.reconcile(desk)
        await second.close()
        assert (await desk.run(launch(run("true")))).outcome is Outcome.SUCCEEDED

    with_desk(plain(place), story)


def test_a_deaf_task_is_dead_when_its_end_is_heard(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(STUBBORN))
        await read_until(desk.backend, b"set")
        desk.stop(grace=0)
        await desk.end_of()
        assert [groups_in(base) for base in groups_of(place)] == [[]] * len(groups_of(place))
        assert len(processes_of(place)) == 3  # the launcher, a supervisor that waits, its watchdog

    with_desk(plain(place), story)
