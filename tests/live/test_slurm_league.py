"""One league of two real Slurm clusters and one of plain processes: a controller dies with jobs in every
state and comes back; nothing is lost, nothing runs twice, and work goes where there is room meanwhile."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.cli.embedded.league_setup import PERSON
from hanse.client.contexts import Context, save_context
from hanse.sdk.client import Client as SdkClient
from tests.live.backends.slurm.fixture import NODE_CPUS, Slurm, missing, slurm_clusters
from tests.live.execution_log import command, complaints, lives
from tests.live.harness import WAIT_SECONDS_MAX, LiveLeague, open_directory, running

LEAGUE = """
timings: {{runner_lease: 6s, cluster_lease: 12s, suspect_after: 4s, lease_grace: 1s,
           start_deadline: 60s}}
brokers: [{{name: b1}}, {{name: b2}}]
clusters:
  - name: alpha
    backend: {{kind: slurm, conf: {alpha.conf}, shared_dir: {shared}, poll: 300ms}}
  - name: beta
    backend: {{kind: slurm, driver: rest, url: "unix:{beta.rest_socket}", token_file: {token},
               shared_dir: {shared}, poll: 300ms, begin_max: 20s}}
  - name: local
    nodes: [{{count: 2, cpus: 4, memory: 512MiB}}]
"""
SLOTS = {
    **{f"{cluster}/{node}": NODE_CPUS for cluster in ("alpha", "beta") for node in range(3)},
    "local/0": 4,
    "local/1": 4,
}


class Shown:
    """The league, its Slurm clusters, and where its tasks say that they live."""

    def __init__(self, live: LiveLeague, alpha: Slurm, beta: Slurm, log: Path) -> None:
        self.live, self.alpha, self.beta, self.log = live, alpha, beta, log

    def hanse(self, *words: str) -> str:
        """The command line, as a user has it."""
        told = subprocess.run(
            [sys.executable, "-m", "hanse", *words], capture_output=True, text=True, check=False, timeout=120
        )
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout.strip()

    def submit(self, count: int, *options: str, pause: str = "0.2") -> str:
        """A job whose tasks tell their lives."""
        life = command(self.log, pause)
        return self.hanse(
            "submit", "-q", "-n", str(count), "--mem", "32MiB", *options, "--", "/bin/sh", "-c", life
        )

    def owner(self, job: str) -> str:
        """The broker that speaks for a job."""
        for name in ("b1", "b2"):
            if self.live.broker(name).raw("GET", f"/v1/jobs/{job}?local=1")[0] == 200:
                return name
        raise AssertionError(f"nobody speaks for {job}")

    def done(self, job: str) -> dict[str, int]:
        """Wait for a job that must succeed; each task and the attempt that counted."""
        door = self.live.broker(self.owner(job))
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        row = door.ask("GET", f"/v1/jobs/{job}/wait?timeout=5&local=1")
        while row["state"] not in ("succeeded", "failed", "cancelled"):
            assert time.monotonic() < deadline, f"{job} has not ended: {row}\n{self._state(job)}"
            for slurm in (self.alpha, self.beta):
                slurm.resume_drained()
            row = door.ask("GET", f"/v1/jobs/{job}/wait?timeout=5&local=1")
        tasks = self.live.tasks(job, self.owner(job))
        wrong = [
            (task["index"], task["attempt"], task["cluster"], task["outcome"], task["note"])
            for task in tasks
            if task["state"] != "succeeded"
        ]
        assert row["state"] == "succeeded", wrong[:10]
        return {f"{job}.{task['index']}": task["attempt"] for task in tasks}

    def _state(self, job: str) -> str:
        """All that may tell why a job does not end."""
        told = [self.hanse("why", job), self.hanse("nodes"), self.hanse("show", job)]
        for slurm in (self.alpha, self.beta):
            told.append(slurm.run("squeue", "-r", "-o", "%i %T %r %N %S %j"))
            told.append(slurm.run("scontrol", "show", "node", "--oneliner"))
        return "\n".join(told)

    def clusters(self, job: str) -> set[str]:
        """Where the tasks of a job ran."""
        return {task["cluster"] for task in self.live.tasks(job, self.owner(job))}


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    if why := missing():
        pytest.skip(why)
    patch = pytest.MonkeyPatch()
    with slurm_clusters("alpha", "beta") as (alpha, beta), open_directory() as directory:
        beta.start_rest()
        token, shared, log = directory / "token", directory / "shared", directory / "lives"
        token.write_text(beta.token(), encoding="ascii")
        shared.mkdir(mode=0o755)
        log.touch()
        log.chmod(0o666)
        patch.setenv("HANSE_CONFIG", str(directory / "contexts"))
        description = LEAGUE.format(alpha=alpha, beta=beta, token=token, shared=shared)
        with running(directory / "home", description) as live:
            save_context("slurm", context(live), make_current=True)
            yield Shown(live, alpha, beta, log)
    patch.undo()


def context(live: LiveLeague) -> Context:
    league = live.league
    return Context(
        league=league.name,
        home=str(live.home.path),
        credentials=str(live.home.person(PERSON)),
        brokers={entry.name: str(entry.door) for entry in league.brokers},
        clusters={entry.name: str(entry.door) for entry in league.clusters},
    )


def test_a_slurm_cluster_serves_commands_output_and_exit_codes(shown: Shown) -> None:
    where = "slurm.feature.big == true"
    job = shown.hanse("submit", "-q", "--gpus", "1", "--where", where, "--", "sh", "-c", "echo $HANSE_GPUS")
    assert shown.hanse("wait", job)
    assert shown.hanse("logs", job).endswith("1")
    assert shown.clusters(job) <= {"alpha", "beta"}
    job = shown.live.submit({"command": "exit 7", "clusters": {"allow": ["beta"]}})
    assert shown.live.wait(job)["state"] == "failed"
    assert shown.live.tasks(job)[0]["code"] == 7


def test_a_controller_dies_with_jobs_in_every_state_and_comes_back(shown: Shown) -> None:
    alpha = shown.alpha
    done = shown.done(shown.submit(12, "--cluster", "alpha"))
    jobs = [
        shown.submit(4, "--cluster", "alpha", pause="10"),  # these run until after the crash
        shown.submit(36, "--cluster", "alpha", pause="1.5"),
        shown.submit(40),
        shown.submit(10, "--cluster", "local"),
        shown.submit(20, "--cluster", "beta", "--unreachable", "wait"),
    ]
    alpha.wait(lambda: {"RUNNING", "COMPLETED"} <= states(alpha), "some run and some have")
    alpha.bar()  # what comes now waits in Slurm's queue
    jobs.append(shown.submit(30, "--cluster", "alpha"))
    alpha.wait(lambda: {"RUNNING", "PENDING", "COMPLETED"} <= states(alpha), "jobs are in every state")
    alpha.kill_controller()
    meanwhile = shown.submit(20)
    done |= shown.done(meanwhile)
    assert "alpha" not in shown.clusters(meanwhile)  # the work went where there is room
    alpha.start_controller()
    alpha.wait(lambda: alpha.states() != {}, "the controller is back")
    alpha.unbar()
    for job in jobs:
        done |= shown.done(job)
    assert len(done) == 12 + 40 + 40 + 10 + 20 + 30 + 20
    assert not (wrong := complaints(lives(shown.log), done, SLOTS)), wrong
    back = shown.submit(3, "--cluster", "alpha")
    shown.done(back)
    assert shown.clusters(back) == {"alpha"}


def test_a_placed_task_that_waits_in_slurm_says_why_to_whoever_asks(shown: Shown) -> None:
    beta = shown.beta
    beta.bar()
    job = shown.submit(1, "--cluster", "beta")
    words = "Slurm says PartitionNodeLimit (the partition does not allow"
    beta.wait(lambda: words in shown.hanse("why", job), "it is known")
    assert f"Task {job}.0 is placed in beta on the node {beta.name}-" in shown.hanse("why", job)
    assert words in shown.hanse("show", "--json", job)
    with SdkClient() as client:
        assert words in client.job(job).why()
    found = shown.live.cluster("beta").ask("GET", f"/v1/waits/{job}")
    assert [(wait["task"], wait["attempt"]) for wait in found["waits"]] == [(f"{job}.0", 1)]
    assert shown.live.cluster("alpha").ask("GET", f"/v1/waits/{job}")["waits"] == []
    beta.unbar()
    shown.done(job)
    assert "Slurm says" not in shown.hanse("why", job)
    assert shown.live.cluster("beta").ask("GET", f"/v1/waits/{job}")["waits"] == []


def test_what_waits_in_a_partition_that_is_closed_runs_elsewhere(shown: Shown) -> None:
    """1. Tasks wait in Slurm, and its partition is closed. 2. Their room is not on offer. 3. They are given
    back after ``begin_max``, long before the league would take them back, and run where there is room."""
    beta = shown.beta
    beta.bar()
    job = shown.submit(4, "--prefer", "beta")
    beta.wait(lambda: listed(beta, "PENDING") == 4, "all wait in Slurm")
    door = shown.live.cluster("beta")
    beta.wait(lambda: len(door.ask("GET", f"/v1/waits/{job}")["waits"]) == 4, "all are known to wait")
    page = door.ask("GET", f"/v1/waits/{job}?limit=3")
    assert [wait["task"] for wait in page["waits"]] == [f"{job}.0", f"{job}.1", f"{job}.2"]
    page = door.ask("GET", f"/v1/waits/{job}?limit=3&after={page['next']}")
    assert ([wait["task"] for wait in page["waits"]], page["next"]) == ([f"{job}.3"], None)
    beta.close()
    beta.unbar()
    try:
        done = shown.done(job)
    finally:
        beta.open()
    assert "beta" not in shown.clusters(job)
    assert "its node was lost" in shown.hanse("why", "--json", job)  # given back, and not withdrawn
    assert not (wrong := complaints(lives(shown.log), done, SLOTS)), wrong
    back = shown.submit(3, "--cluster", "beta")
    shown.done(back)  # its room is on offer again


def test_tasks_that_slurm_puts_off_run_elsewhere(shown: Shown) -> None:
    """1. Slurm sends jobs to a node whose daemon does not answer. 2. The daemon comes back soon, and Slurm
    puts the jobs off: for two minutes they do not begin, whatever becomes of the node. The last test here:
    Slurm has trouble with that node for a while."""
    alpha = shown.alpha
    count = 2 * NODE_CPUS + 2  # more than two nodes hold
    alpha.bar()
    job = shown.submit(count, "--cluster", "alpha")
    alpha.wait(lambda: listed(alpha, "PENDING") == count, "all wait in Slurm, each for its node")
    alpha.pause(alpha.nodes[0])
    alpha.unbar()
    alpha.wait(lambda: listed(alpha, "RUNNING", alpha.nodes[0]) > 0, "some are sent there")
    alpha.kill(alpha.nodes[0])
    alpha.start_node(alpha.nodes[0])
    done = shown.done(job)
    assert not (wrong := complaints(lives(shown.log), done, SLOTS)), wrong


def listed(slurm: Slurm, state: str, node: str = "") -> int:
    """How many jobs are in a state, on a node or anywhere."""
    where = [f"--nodelist={node}"] if node else []
    return len(slurm.run("squeue", "-h", "-r", "-t", state, *where, "-o", "%T").split())


def states(slurm: Slurm) -> set[str]:
    return set(slurm.run("squeue", "-h", "-r", "-t", "all", "-o", "%T").split())
