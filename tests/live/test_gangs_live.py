"""Gangs in a real league: what each task is told, parts of a cluster, and the torchrun and MPI examples."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.harness import LiveLeague, open_directory, running

ROOT = Path(__file__).parents[2]
EXAMPLE_SECONDS_MAX = 600.0
HOST = "127.0.0.1"
LEAGUE = """
brokers: [{name: b1}]
clusters:
  - name: north
    nodes:
      - {cpus: 1, memory: 2GiB, attributes: {zone: a, rack: r1}}
      - {cpus: 1, memory: 2GiB, attributes: {zone: b, rack: r1}}
      - {cpus: 3, memory: 1GiB, attributes: {rack: r2}, address: 127.0.0.1}
"""
SHOW = """
for name in GROUP RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE NODE_RANK NODES HOSTS MASTER_ADDR MASTER_PORT NODE; do
    eval "echo $name=\\${HANSE_$name-unset}"
done
"""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league


def told(live: LiveLeague, form: dict[str, Any]) -> list[dict[str, str]]:
    """Run a job; return what each task found in its environment."""
    job = live.submit({"command": SHOW, "env": {"HANSE_RANK": "99", "HANSE_HOSTS": "nobody"}, **form})
    assert live.wait(job)["state"] == "succeeded"
    texts = [live.output(job, task) for task in range(form.get("count", 1))]
    return [dict(line.split("=", 1) for line in text.splitlines()) for text in texts]


def test_each_task_of_a_gang_is_told_its_place(live: LiveLeague) -> None:
    form = {"gang": True, "count": 4, "cpus": 0.5, "spread": "zone", "spread_max": 2}
    found = told(live, form)
    assert [(one["RANK"], one["WORLD_SIZE"], one["GROUP"]) for one in found] == [
        (str(rank), "4", "main") for rank in range(4)
    ]
    assert [(one["LOCAL_RANK"], one["LOCAL_SIZE"]) for one in found] == [("0", "2"), ("1", "2")] * 2
    assert [(one["NODE_RANK"], one["NODES"], one["NODE"]) for one in found] == [
        (node, "2", node) for node in "0011"
    ]
    assert {(one["HOSTS"], one["MASTER_ADDR"]) for one in found} == {(f"{HOST}:4", HOST)}
    (port,) = {int(one["MASTER_PORT"]) for one in found}
    assert 20_000 <= port < 20_100


def test_tasks_of_other_groups_are_told_their_ranks(live: LiveLeague) -> None:
    (alone,) = told(live, {"cpus": 0.1})
    assert (alone["RANK"], alone["WORLD_SIZE"], alone["GROUP"]) == ("0", "1", "main")
    assert alone["LOCAL_RANK"] == alone["HOSTS"] == alone["MASTER_PORT"] == "unset"
    groups = [{"name": "one", "count": 2, "cpus": 0.1}, {"name": "two", "count": 3, "cpus": 0.1}]
    job = live.submit({"command": SHOW, "groups": groups})
    assert live.wait(job)["state"] == "succeeded"
    last = dict(line.split("=", 1) for line in live.output(job, 3).splitlines())
    assert (last["RANK"], last["WORLD_SIZE"], last["GROUP"]) == ("1", "3", "two")


def test_a_gang_stays_in_one_rack_or_is_refused_with_the_reason(live: LiveLeague) -> None:
    found = told(live, {"gang": True, "count": 3, "cpus": 1, "together": "rack"})
    assert {one["NODE"] for one in found} == {"2"}, "no other rack has room for three"
    found = told(live, {"gang": True, "count": 2, "cpus": 1, "together": "rack"})
    assert {one["NODE"] for one in found} == {"0", "1"}, "the rack with the least room that fits"
    form = {"command": "true", "gang": True, "count": 4, "cpus": 1, "together": "rack"}
    (result,) = live.broker().ask("POST", "/v1/jobs", {"jobs": [form]})["results"]
    refusal = str(result)
    assert (
        "no rack has room for 4 tasks of 1 CPU: the best, rack r2 of cluster north, has room for 3" in refusal
    )


def prefix_of(program: str) -> Path:
    """Return the virtual environment that has a program; skip the test if none has it."""
    candidates = [Path(os.environ.get("HANSE_RANKS", sys.prefix)), Path(sys.prefix)]
    for prefix in candidates:
        if (prefix / "bin" / program).exists():
            return prefix
    pytest.skip(f"no {program} here: install it (docs/user/gangs.md), and name its directory in HANSE_RANKS")


def wait_long(live: LiveLeague, job: str) -> str:
    """Return the state in which a job ended. Eight interpreters that import torch take long together."""
    deadline = time.monotonic() + EXAMPLE_SECONDS_MAX
    while True:
        row = live.broker().ask("GET", f"/v1/jobs/{job}/wait?timeout=30&local=1")
        if row["state"] in ("succeeded", "failed", "cancelled"):
            return str(row["state"])
        assert time.monotonic() < deadline, f"{job} has not ended: {row}"


@pytest.mark.parametrize(("example", "program"), [("torchrun", "torchrun"), ("mpi", "mpiexec")])
def test_the_examples_form_one_world_of_two_nodes(live: LiveLeague, example: str, program: str) -> None:
    prefix = prefix_of(program)
    with open_directory() as directory:
        ranks = directory / "ranks"
        ranks.mkdir(mode=0o755)
        for name in ("bin", "lib", "pyvenv.cfg"):
            (ranks / name).symlink_to(prefix / name)
        for path in (ROOT / "examples" / example).glob("*.py"):
            shutil.copy(path, ranks)
        form = yaml.safe_load((ROOT / "examples" / example / "job.yaml").read_text(encoding="utf-8"))
        form["env"]["RANKS"] = str(ranks)
        job = live.submit(form)
        state = wait_long(live, job)
        lines = sorted("".join(live.output(job, task) for task in range(4)).splitlines())
        assert state == "succeeded", [live.output(job, task, "stderr") for task in range(4)]
    said = [line for line in lines if line.startswith("rank ")]
    assert [line.partition(" on ")[0] for line in said] == [f"rank {rank} of 4" for rank in range(4)]
    assert [line.partition(" on ")[2] for line in said] == [
        f"node {node} of north: the ranks add up to 6" for node in (0, 0, 1, 1)
    ]
