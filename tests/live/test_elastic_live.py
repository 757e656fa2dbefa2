"""Elastic work on real processes: the learned size finishes sooner than the least and than the most."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.harness import LiveLeague, open_directory, running

LEAGUE = """
policy: {sizer: priced}
brokers: [{name: b1}]
clusters:
  - name: north
    nodes: [{cpus: 0.4, memory: 1GiB}]
"""
BUSY = """
import time
for _ in range(60):
    began = time.thread_time()
    while time.thread_time() - began < 0.001:
        pass
    time.sleep(0.009)
"""
"""Work that can use a tenth of a CPU and no more: so little that other work here hardly matters."""
LESSONS = 20
ROUNDS = 3


@pytest.fixture
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league


def limits_cpu(live: LiveLeague) -> bool:
    """Whether tasks really get only the CPUs they asked for here."""
    return not any(
        "cpu" in warning.lower() for warning in live.cluster("north").ask("GET", "/v1/cluster")["warnings"]
    )


def timed(live: LiveLeague, **fields: Any) -> float:
    """Seconds until a job of two busy tasks has ended."""
    began = time.monotonic()
    job = live.submit(
        {"name": "busy", "count": 2, "command": ["/usr/bin/env", "python3", "-Sc", BUSY], **fields}
    )
    assert live.wait(job)["state"] == "succeeded"
    return time.monotonic() - began


def test_learned_sizes_finish_sooner_than_the_least_and_than_the_most(live: LiveLeague) -> None:
    if not limits_cpu(live):
        pytest.skip("CPU limits cannot be enforced here: no writable cgroup")
    for _ in range(LESSONS):
        timed(live, cpus="0.05..0.4")
    job = live.submit({"name": "busy", "command": "true", "cpus": "0.05..0.4"})
    live.wait(job)
    told = " ".join(live.broker().ask("GET", f"/v1/jobs/{job}/why")["sentences"])
    assert "0.1 CPUs each" in told or "0.2 CPUs each" in told, told
    learned = least = most = 0.0
    for _ in range(ROUNDS):
        learned += timed(live, cpus="0.05..0.4")
        least += timed(live, cpus="0.05", name="least")
        most += timed(live, cpus="0.4", name="most")
    assert learned < least, f"learned {learned:.2f} s, least {least:.2f} s"
    assert learned < most, f"learned {learned:.2f} s, most {most:.2f} s"


def test_the_choice_explains_itself(live: LiveLeague) -> None:
    job = live.submit({"name": "explained", "command": "true", "cpus": "0.1..0.4"})
    live.wait(job)
    sentences = " ".join(live.broker().ask("GET", f"/v1/jobs/{job}/why")["sentences"])
    assert "0.4 CPUs each" in sentences
    assert "believed" in sentences
    assert "with the price of what it holds" in sentences
