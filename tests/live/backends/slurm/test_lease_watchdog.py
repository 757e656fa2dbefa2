"""Nothing of a task outlives its lease on a real Slurm, though its script is halted and no daemon there."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hanse.live.backends.process.launch_requests import find_task_user
from hanse.live.backends.slurm.batch_script import LEASE_OVER
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from tests.live.backends.desk import SECOND, Desk, launch, now, task, with_desk
from tests.live.backends.places import shell
from tests.live.backends.slurm.fixture import Slurm, missing, slurm_clusters, steps_below
from tests.live.backends.slurm.places import backend_on, place_on, until

LEAVERS = {
    "setsid": "setsid sh -c '{live}' & exec sleep 3600",
    "orphan": "(setsid sh -c '{live}' &) ; exec sleep 3600",
    "orphan without environment": "(env -i PATH=$PATH setsid sh -c '{live}' &) ; exec sleep 3600",
}
"""Ways of a task to leave its session, and its parent too."""


@pytest.fixture(scope="module")
def grouped() -> Iterator[Slurm]:
    """A cluster that has a control group for each step."""
    if why := missing():
        pytest.skip(why)
    if not Path("/sys/fs/cgroup/freezer/tasks").exists():
        pytest.skip("Slurm is set up for control groups of version 1 here, and there are none")
    with slurm_clusters("grouped", cgroups=True) as (cluster,):
        yield cluster


def script_processes(slurm: Slurm) -> list[int]:
    """The shells of a running script: the script itself, and the one that looks at its orders."""
    found = []
    for pid in steps_below(slurm.base):
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
            if b"/slurm_script\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def check_leaver(slurm: Slurm, place: Path, leaver: str) -> None:
    """1. A task leaves its session. 2. Its script is halted, and its daemon goes. 3. The lease is over."""
    beats = place / "beats"
    beats.touch()
    beats.chmod(0o666)
    live = f"while :; do echo x >> {beats}; sleep 0.1; done"
    shared = SharedDirectory(place / "shared", find_task_user("nobody"))
    halted: list[int] = []

    async def before(desk: Desk) -> None:
        desk.guard(now() + 5 * SECOND)
        desk.start(launch(shell(LEAVERS[leaver].format(live=live))))
        await until(lambda: beats.stat().st_size > 20, "it lives")
        halted.extend(script_processes(slurm))
        assert len(halted) >= 2
        for pid in halted:
            os.kill(pid, signal.SIGSTOP)

    try:
        with_desk(lambda: backend_on(slurm, place), before)
        lease = shared.read_lease()
        slurm.wait(lambda: time.time() * 1_000 > lease, "the lease is over")

        def is_still() -> bool:
            size = beats.stat().st_size
            time.sleep(1.0)
            return beats.stat().st_size == size

        assert is_still() or is_still(), "it outlives its lease"
        assert shared.read_records((task(0), 1)).end is None
    finally:
        for pid in halted:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    slurm.wait(lambda: shared.read_records((task(0), 1)).end is not None, "the script tells the end")
    ended = shared.read_records((task(0), 1)).end
    assert ended is not None
    assert (ended.cause, ended.code) == (LEASE_OVER, -9)


@pytest.mark.parametrize("leaver", ["setsid", "orphan"])
def test_nothing_of_a_task_outlives_its_lease(slurm: Slurm, place: Path, leaver: str) -> None:
    check_leaver(slurm, place, leaver)


@pytest.mark.parametrize("leaver", list(LEAVERS))
def test_with_control_groups_not_even_what_hides_itself(grouped: Slurm, leaver: str) -> None:
    with place_on(grouped) as place:
        check_leaver(grouped, place, leaver)
