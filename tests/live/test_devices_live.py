"""Devices in a league with real daemons, on two runners: tasks hold locks on them while members die.

Files stand in for GPUs. What the nodes are made of is detected, and becomes attributes.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.live.hardware.machine import detect_hardware
from tests.live.harness import WAIT_SECONDS_MAX, LiveLeague, open_directory, running

TASKS = 24
LEAGUE = """
league: devices
brokers: [{{name: b1}}]
clusters:
  - name: north
    runners: [{{name: far}}]
    nodes:
      - cpus: 2
        memory: 256MiB
        devices: [{{kind: gpu, path: {place}/gpu0, model: T4}}, {{kind: gpu, path: {place}/gpu1, model: T4}}]
      - cpus: 2
        memory: 256MiB
        runner: far
        attributes: {{cpu_class: mine}}
        devices: [{{kind: gpu, path: {place}/gpu2}}, {{kind: gpu, path: {place}/gpu3}}]
"""
SCRIPT = """
exec 9>>"$HANSE_DEVICES_GPU" || exit 98
flock -n 9 || {{ echo "$HANSE_TASK.$HANSE_ATTEMPT met another at $HANSE_DEVICES" >> {place}/wrong; exit 99; }}
echo "$HANSE_TASK $HANSE_DEVICES $CUDA_VISIBLE_DEVICES" >> {place}/told
sleep 0.4
"""


@pytest.fixture
def league() -> Iterator[tuple[LiveLeague, Path]]:
    if shutil.which("flock") is None:
        pytest.skip("the tasks lock by 'flock'")
    with open_directory() as directory:
        place = directory / "place"
        place.mkdir(mode=0o755)
        for name in ("gpu0", "gpu1", "gpu2", "gpu3", "wrong", "told"):
            (place / name).touch()
            (place / name).chmod(0o666)
        with running(directory / "home", LEAGUE.format(place=place)) as live:
            yield live, place


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.02)  # the outside world: there is nothing to await


def test_members_die_and_no_two_tasks_have_a_device(league: tuple[LiveLeague, Path]) -> None:
    live, place = league
    told = place / "told"
    ask = {"cpus": "0.5", "memory": "16MiB", "gpus": 1}
    job = live.submit({"count": TASKS, **ask, "command": ["/bin/sh", "-c", SCRIPT.format(place=place)]})
    for count, name in ((2, "north"), (8, "far"), (14, "north")):
        wait_for_lines(told, count)
        live.kill(name)
        live.start(name)
    assert live.wait(job)["state"] == "succeeded"
    assert (place / "wrong").read_text() == ""
    lines = [line.split() for line in told.read_text().splitlines()]
    assert {int(index) for index, _, _ in lines} == set(range(TASKS))
    assert {file for _, file, _ in lines} == {f"{place}/gpu{number}" for number in range(4)}
    assert all(file.endswith(("gpu0", "gpu2")) == (index == "0") for _, file, index in lines)

    detail = live.cluster("north").ask("GET", "/v1/cluster")
    here, far = detail["nodes"]
    found = detect_hardware().cpu
    assert here["attributes"] == {
        "cpu_class": found.cpu_class, "cpu_model": found.model, "gpu_model": "T4",
    }  # fmt: skip
    assert far["attributes"] == {"cpu_class": "mine", "cpu_model": found.model}  # known since the restart
    assert [device["task"] for device in here["devices"]] == ["", ""]
    assert [device["paths"] for device in far["devices"]] == [[f"{place}/gpu2"], [f"{place}/gpu3"]]
    assert {name: machine["cpu_class"] for name, machine in detail["hardware"].items()} == {
        "north/runner": found.cpu_class, "far": found.cpu_class,
    }  # fmt: skip
