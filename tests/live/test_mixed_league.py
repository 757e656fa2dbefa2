"""One league of two Slurm clusters and one of processes, used by a Python program, the command line and curl
at once, while a Slurm controller dies and comes back."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import pytest

import hanse
from hanse.client.contexts import save_context
from hanse.security.access_token_issuer import AccessTokenIssuer
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from tests.live import sdk_calls
from tests.live.backends.slurm.fixture import NODE_CPUS, Slurm, missing, slurm_clusters
from tests.live.execution_log import command, complaints, lives
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.sdk_league import USER, context_of

LEAGUE = """
timings: {{runner_lease: 6s, cluster_lease: 12s, suspect_after: 4s, lease_grace: 1s}}
brokers: [{{name: b1}}, {{name: b2}}]
clusters:
  - name: alpha
    backend: {{kind: slurm, conf: {alpha.conf}, shared_dir: {shared}, poll: 300ms, user: {user}}}
  - name: beta
    backend: {{kind: slurm, conf: {beta.conf}, shared_dir: {shared}, poll: 300ms, user: {user}}}
  - name: local
    backend: {{kind: process, user: {user}}}
    nodes: [{{count: 2, cpus: 4, memory: 1GiB}}]
"""
SLOTS = {
    **{f"{cluster}/{node}": NODE_CPUS for cluster in ("alpha", "beta") for node in range(3)},
    **dict.fromkeys(("local/0", "local/1"), 4),
}
CALLS = 400
"""Calls of the Python program to each pool, a few milliseconds each."""


class Mixed:
    """The league, its Slurm clusters, and where its tasks say that they live."""

    def __init__(self, live: LiveLeague, alpha: Slurm, log: Path) -> None:
        self.live, self.alpha, self.log = live, alpha, log

    def by_hand(self, count: int, *options: str, pause: str = "0.5") -> str:
        """A job from the command line, whose tasks tell their lives."""
        words = ["submit", "-q", "-n", str(count), "--mem", "32MiB", *options, "--", "/bin/sh", "-c"]
        done = subprocess.run(
            [sys.executable, "-m", "hanse", *words, command(self.log, pause)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def by_curl(self, count: int, token: str) -> str:
        """The same with curl and an access token."""
        form = {"count": count, "memory": "32MiB", "command": command(self.log, "0.5")}
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "60",
             "--cacert", str(self.live.credentials.authority_path), "-H", f"Authorization: Bearer {token}",
             "--json", json.dumps({"jobs": [form]}), f"https://{self.live.league.broker('b2').door}/v1/jobs"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["results"][0]["job"])

    def done(self, job: str) -> dict[str, int]:
        """Wait for a job that must succeed; each task and the attempt that counted."""
        owner = "b1" if job.startswith("1-") else "b2"
        assert self.live.wait(job, owner)["state"] == "succeeded", self.live.tasks(job, owner)
        return {f"{job}.{task['index']}": task["attempt"] for task in self.live.tasks(job, owner)}


@pytest.fixture
def mixed() -> Iterator[Mixed]:
    if why := missing():
        pytest.skip(why)
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    patch = pytest.MonkeyPatch()
    with slurm_clusters("alpha", "beta") as (alpha, beta), open_directory() as directory:
        shared, log = directory / "shared", directory / "lives"
        shared.mkdir(mode=0o755)
        log.touch()
        patch.setenv("HANSE_CONFIG", str(directory / "contexts"))
        patch.delenv("HANSE_CONTEXT", raising=False)
        description = LEAGUE.format(alpha=alpha, beta=beta, shared=shared, user=USER)
        with running(directory / "home", description) as live:
            save_context("mixed", context_of(live), make_current=True)
            yield Mixed(live, alpha, log)
    patch.undo()


def test_a_program_people_and_curl_share_the_league_while_a_controller_is_away(mixed: Mixed) -> None:
    home = mixed.live.home
    token = AccessTokenIssuer(home, Authority.open(home.authority)).create(Role.SUBMITTER, "robot", 1)
    with (
        hanse.Executor(
            {"memory": "128MiB"}, max_workers=2, job={"clusters": {"allow": ["alpha"]}}
        ) as on_slurm,
        hanse.Executor({"memory": "128MiB"}, max_workers=2, job={"clusters": {"allow": ["local"]}}) as here,
    ):
        assert on_slurm.submit(os.getenv, "HANSE_CLUSTER").result(120) == "alpha"
        assert "hanse:alpha:" in mixed.alpha.run("squeue", "-h", "-o", "%j"), "its hand is a job of Slurm"
        jobs = [mixed.by_hand(20, "--cluster", "alpha"), mixed.by_hand(20), mixed.by_curl(20, token)]
        calls = [pool.submit(sdk_calls.later, 0.005, 1) for _ in range(CALLS) for pool in (on_slurm, here)]
        mixed.alpha.kill_controller()
        meanwhile = mixed.by_hand(10)
        done = mixed.done(meanwhile)
        assert sum(call.exception() is None for call in as_completed(calls, 120)) == 2 * CALLS
        mixed.alpha.start_controller()
        for job in jobs:
            done |= mixed.done(job)
    assert len(done) == 70
    assert not (wrong := complaints(lives(mixed.log), done, SLOTS)), wrong
