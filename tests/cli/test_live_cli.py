"""The command line against a real league: real daemons, real certificates, real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hanse.client.exit_codes import ExitCode

SECONDS_MAX = 120
"""For one command; generous, because test machines are busy."""


LOG_SHOWN_MAX = 1_500


class Shell:
    """Somebody at a terminal whose league lives in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
        self.env = {**kept, "HANSE_CONFIG": str(folder / "config.json"), "HANSE_HOME": str(self.home)}

    def run(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "hanse", *words],
            input=stdin, env=self.env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == ExitCode.OK, (
            f"{words}: {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}"
        )
        return done.stdout

    def logs(self) -> str:
        """The last words of every member, for whoever reads a failure."""
        files = sorted(self.home.glob("*/log.jsonl"))
        return "".join(f"\n--- {file.parent.name}\n{file.read_text()[-LOG_SHOWN_MAX:]}" for file in files)

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def submit(self, *words: str) -> str:
        return self.ok("submit", "-q", *words).strip()


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="hanse-cli-") as name:
        Path(name).chmod(0o755)  # tasks, who may be nobody, must be able to enter
        made = Shell(Path(name))
        said = made.run("up", "--clusters", "2", "--nodes", "2")
        try:
            assert said.returncode == ExitCode.OK, said.stdout + said.stderr
            yield made
        finally:
            made.run("down", "--delete")


def test_a_job_from_its_submission_to_its_page(shell: Shell) -> None:
    job = shell.submit(
        "-n", "3", "--name", "greet", "--", "sh", "-c", 'echo "hello $HANSE_TASK"; echo oops >&2'
    )
    assert "greet succeeded" in shell.ok("wait", job)
    done = shell.run("logs", job)
    assert done.stdout == "[0] hello 0\n[1] hello 1\n[2] hello 2\n"
    assert done.stderr == "[0] oops\n[1] oops\n[2] oops\n"
    assert shell.ok("logs", f"{job}.1", "--stdout") == "hello 1\n"
    page = shell.json("show", job)
    assert page["job"]["state"] == "succeeded"
    assert [task["code"] for task in page["tasks"]] == [0, 0, 0]
    assert page["usage"]["tasks"] == 3
    text = shell.ok("show", job)
    assert "greet" in text
    assert "exit 0" in text
    assert "succeeded" in shell.ok("why", job)
    assert job in shell.ok("jobs", "--name", "greet")
    assert [one["id"] for one in shell.json("jobs", "--name", "greet")["jobs"]] == [job]
    assert shell.json("jobs", "--name", "nobody")["jobs"] == []


def test_how_jobs_end_is_the_status(shell: Shell) -> None:
    assert shell.run("submit", "--wait", "--", "true").returncode == ExitCode.OK
    assert shell.run("submit", "--wait", "--", "sh", "-c", "exit 3").returncode == ExitCode.JOB_FAILED
    assert (
        shell.run("submit", "--wait", "--deadline", "1s", "--", "sleep", "60").returncode
        == ExitCode.JOB_DEADLINE
    )
    job = shell.submit("--", "sleep", "60")
    assert shell.run("wait", "--now", job).returncode == ExitCode.JOB_NOT_FINISHED
    assert shell.run("wait", "--timeout", "1", job).returncode == ExitCode.TIMEOUT
    assert shell.run("retry", job).returncode == ExitCode.JOB_NOT_FINISHED
    assert "cancelled" in shell.ok("cancel", "--wait", job)
    assert shell.run("wait", job).returncode == ExitCode.JOB_CANCELLED
    assert shell.run("wait", "1-99999").returncode == ExitCode.JOB_NOT_FOUND


def test_output_is_followed_while_it_is_written(shell: Shell) -> None:
    done = shell.run(
        "submit", "-q", "--follow", "-n", "2", "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done"
    )
    job, *lines = done.stdout.split("\n")
    assert done.returncode == ExitCode.OK, done.stderr
    assert sorted(lines) == ["", "[0] 1", "[0] 2", "[0] 3", "[1] 1", "[1] 2", "[1] 3"]
    assert [line for line in lines if line.startswith("[0]")] == ["[0] 1", "[0] 2", "[0] 3"]
    assert shell.ok("logs", "-f", f"{job}.1") == "1\n2\n3\n"


def test_only_what_failed_is_tried_again_with_its_old_index(shell: Shell) -> None:
    job = shell.submit("-n", "3", "--", "sh", "-c", 'echo "was $HANSE_TASK"; [ "$HANSE_TASK" != 2 ]')
    assert shell.run("wait", "-q", job).returncode == ExitCode.JOB_FAILED
    again = shell.ok("retry", "-q", job).strip()
    assert shell.run("wait", "-q", again).returncode == ExitCode.JOB_FAILED
    assert shell.ok("logs", again) == "was 2\n"
    once_more = shell.json("retry", again)
    assert (once_more["of"], once_more["tasks"]) == (again, 1)


def test_a_file_with_groups_that_need_each_other(shell: Shell) -> None:
    text = """
name: pipeline
tenant: physics
groups:
  - {name: fetch, command: [echo, fetched]}
  - {name: count, count: 2, needs: [fetch], command: [echo, counted], where: zone == "b"}
---
name: second
command: exit 4
retries: 1
"""
    done = shell.run("submit", "-", "--wait", "--json", stdin=text)
    assert done.returncode == ExitCode.JOB_FAILED, done.stderr
    first, second = json.loads(done.stdout)["jobs"]
    assert (first["state"], first["total"], first["tenant"]) == ("succeeded", 3, "physics")
    assert second["state"] == "failed"
    tasks = shell.json("show", second["id"])["tasks"]
    assert [(task["failures"], task["code"]) for task in tasks] == [(2, 4)]  # once, and one retry
    placed = {task["node"] for task in shell.json("show", first["id"])["tasks"] if task["group"] == "count"}
    assert placed == {1}  # the second node of each cluster is in zone b


def test_the_same_client_id_is_the_same_job(shell: Shell) -> None:
    words = ("--client-id", "once", "--", "true")
    assert shell.submit(*words) == shell.submit(*words)


def test_what_nobody_could_run_is_refused(shell: Shell) -> None:
    done = shell.run("submit", "--cpus", "5000", "--", "true")
    assert done.returncode == ExitCode.UNPLACEABLE
    assert "no node" in done.stderr
    assert done.stdout == ""
    assert shell.run("submit", "--where", 'arch == "none"', "--", "true").returncode == ExitCode.UNPLACEABLE


def test_draining(shell: Shell) -> None:
    cluster = shell.json("clusters")["clusters"][0]["name"]
    shell.ok("drain", f"{cluster}/1")
    states = {node["node"]: node["draining"] for node in shell.json("nodes", cluster)["nodes"]}
    assert states == {0: False, 1: True}
    shell.ok("drain", cluster, "--reason", "new disks", "--for", "2h", "--wait")
    assert shell.json("status")["clusters"][0]["draining"] is True
    for command in ("status", "clusters", "nodes"):
        assert f"{cluster} is drained (new disks, by " in shell.ok(command)
    late = shell.run("drain", cluster, "--until", "2001-01-01 00:00")
    assert (late.returncode, "future" in late.stderr) == (ExitCode.USAGE, True)
    job = shell.submit("-n", "2", "--", "true")
    shell.ok("wait", "-q", job)
    assert cluster not in shell.json("show", job)["job"]["clusters"]
    shell.ok("undrain", cluster)
    assert shell.json("status")["clusters"][0]["nodes_draining"] == 0
    assert shell.run("drain", f"{cluster}/99").returncode == ExitCode.USAGE


def test_a_drain_waits_for_what_runs_until_it_is_opened(shell: Shell) -> None:
    cluster = shell.json("clusters")["clusters"][0]["name"]
    job = shell.submit("--cluster", cluster, "--", "sleep", "600")
    await_running(shell, job)
    with drain_waiting(shell, cluster) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{cluster}: 1 task still to end\n"
        shell.ok("undrain", cluster)
        said = waiting.communicate(timeout=SECONDS_MAX)[1]
        assert waiting.returncode == ExitCode.FAILED
        assert f"{cluster} was opened again while 1 task ran there" in said
    with drain_waiting(shell, cluster) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{cluster}: 1 task still to end\n"
        shell.ok("cancel", "--wait", job)
        said = waiting.communicate(timeout=SECONDS_MAX)[1]
        assert (waiting.returncode, said) == (ExitCode.OK, f"{cluster}: nothing runs there any more\n")
    shell.ok("undrain", cluster)


def drain_waiting(shell: Shell, cluster: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "hanse", "drain", cluster, "--wait"]
    return subprocess.Popen(
        words, env=shell.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip


def await_running(shell: Shell, job: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while shell.json("show", job)["job"]["state"] != "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_plans(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: sleep 1\n")
    done = shell.run("plan", str(file))
    assert done.returncode == ExitCode.OK, done.stderr
    assert "It would start now" in done.stdout
    file.write_text("command: sleep 1\ncount: 500\n")
    done = shell.run("plan", str(file))
    assert done.returncode == ExitCode.OK, done.stderr
    told = " ".join(done.stdout.split())
    assert re.search(r"\d+ of 500 tasks would start now in \w+", told)
    assert re.search(
        r"; \d+ would wait because no cluster has 1 CPU\b.* free on one node: the best node of", told
    )
    assert "Something can start when a node of" in told
    file.write_text("command: sleep 1\ncpus: 5000\n")
    assert shell.run("plan", str(file)).returncode == ExitCode.FAILED
    assert shell.run("plan", str(tmp_path / "missing.yaml")).returncode == ExitCode.UNDETERMINED


def test_the_league_goes_on_when_a_broker_dies_and_when_it_is_down(shell: Shell) -> None:
    job = shell.submit("-n", "2", "--", "sh", "-c", "sleep 1; echo done")
    pids = json.loads((shell.home / "pids.json").read_bytes())
    os.kill(pids["broker-1"], signal.SIGKILL)
    assert shell.run("status").returncode == ExitCode.FAILED
    assert shell.run("wait", "-q", job).returncode == ExitCode.OK
    assert shell.ok("logs", job) == "[0] done\n[1] done\n"
    assert job in [one["id"] for one in shell.json("jobs")["jobs"]]
    assert shell.submit("--", "true").startswith("2-")
    shell.ok("up")
    shell.ok("status")
    shell.ok("down")
    done = shell.run("jobs")
    assert done.returncode == ExitCode.UNAVAILABLE
    assert "hanse up" in done.stderr
    shell.ok("up")
    assert shell.run("wait", "-q", job).returncode == ExitCode.OK
