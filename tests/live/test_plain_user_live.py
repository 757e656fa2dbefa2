"""The league of somebody who is not root: bubblewrap keeps its tasks apart, or ``hanse up`` says that nothing
does."""

import os
import pwd
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.cli import task_user
from hanse.live.backends.process.sandbox import namespace_problem
from tests.live.backends.places import process_with
from tests.live.harness import open_directory, stop_launchers

NOBODY = pwd.getpwnam("nobody")
SECONDS_MAX = 180.0
NOTICE = "Tasks are not isolated from each other"
SEARCH = """
grep -l {secret} /proc/[0-9]*/environ
ls /proc/{pid}/cwd
cat {home}/*/tasks/work/*/mine
head -c 20 {home}/*/identity.pem {home}/people/*/identity.pem {home}/authority/*
ls {home}/*/journal
kill {pid} && echo killed
echo done
"""


CALLS = """
import hanse
with hanse.Executor(max_workers=1) as pool:
    print(pool.submit(pow, 2, 10).result(120))
    print(len(pool.submit(bytes, 2_000_000).result(120)))
"""


def reason() -> str:
    if os.geteuid() != 0:
        return "only root can start a league as somebody else"
    closed = [
        path
        for path in task_user._required_paths()
        if not task_user._can_use(NOBODY.pw_uid, NOBODY.pw_gid, path)
    ]
    return f"nobody may not use {closed[0]}" if closed else ""


pytestmark = pytest.mark.skipif(bool(reason()), reason=reason())


class Person:
    """Somebody with a home directory, and ``hanse``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "league"
        self.secret = secrets.token_hex(8)
        os.chown(folder, NOBODY.pw_uid, NOBODY.pw_gid)
        self.env = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "HANSE_HOME": str(self.home),
            "HANSE_CONFIG": str(folder / "config.json"),
            "PYTHONPATH": os.pathsep.join(sys.path[1:]),
        }

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return self.python("-m", "hanse", *words, **env)

    def python(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words],
            env={**self.env, **env},
            cwd="/",
            user=NOBODY.pw_uid,
            group=NOBODY.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def up(self, **env: str) -> str:
        """Start a league; what was said beside what is always said."""
        done = self.run("up", "--clusters", "1", "--brokers", "1", **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    def start_victim(self) -> int:
        """Start a task with a secret; its process number, as root sees it."""
        script = "echo precious > mine; exec sleep 3600"
        done = self.run("submit", "-q", "--env", f"SECRET={self.secret}", "--", "sh", "-c", script)
        assert done.returncode == 0, done.stderr
        return process_with(b"SECRET=" + self.secret.encode(), b"sleep")

    def said_by_task(self, script: str) -> str:
        """What a task has written."""
        job = self.run("submit", "-q", "--wait", "--", "sh", "-c", script).stdout.split()[0]
        return self.run("logs", job).stdout


@pytest.fixture
def person() -> Iterator[Person]:
    with open_directory() as directory:
        (directory / "nobody").mkdir()
        someone = Person(directory / "nobody")
        try:
            yield someone
        finally:
            someone.run("down")
            stop_launchers(directory)


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
def test_with_bubblewrap_a_task_gains_nothing(person: Person) -> None:
    assert NOTICE not in person.up()
    pid = person.start_victim()
    said = person.said_by_task(SEARCH.format(secret=person.secret, pid=pid, home=person.home))
    assert said.split() == ["done"]
    assert person.said_by_task("cd / && echo $PPID > $HOME/x && cd $HOME && cat x").split() == ["1"]
    assert process_with(b"SECRET=" + person.secret.encode(), b"sleep") == pid
    called = person.python("-c", CALLS)
    assert called.stdout.split() == ["1024", "2000000"], called.stderr


def test_without_bubblewrap_it_is_said(person: Person) -> None:
    said = person.up(PATH="/nonexistent")
    assert said.count(NOTICE) == 1
    assert "bubblewrap is not installed" in said
    others = [line for line in said.strip().splitlines() if NOTICE not in line]
    assert all("Memory of tasks" in line for line in others), others  # said where there are no control groups
    pid = person.start_victim()
    found = person.said_by_task(SEARCH.format(secret=person.secret, pid=pid, home=person.home))
    assert "environ" in found  # so the search above would have found something
    assert "PRIVATE" in found
