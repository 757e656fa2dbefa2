"""Version 2 of control groups with all its controllers, on a kernel of our own: User-Mode Linux.

Most machines have one version only, so the tests of the process backend see one driver only. Where
``linux.uml`` is installed (Debian: ``user-mode-linux``), they run once more inside: its root is this
machine's file system, and everything that they write is in memory.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.cgroups import find_v2, read_mounts, read_own_groups
from tests.live.backends.places import NODES

ROOT = Path(__file__).parents[4]
INSIDE = "HANSE_TEST_INSIDE_UML"
TESTS = (
    "test_version_2",
    "test_launcher",
    "test_process_conformance",
    "test_process_limits",
    "test_process_output",
    "test_process_recovery",
    "test_process_tasks",
)
BOOT_SECONDS_MAX = 900
INIT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t tmpfs tmp {tmp}
chmod 1777 {tmp}
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
echo "+cpu +memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/unit
cd {root}
export HOME={tmp} TMPDIR={tmp} PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 {inside}=1
sh -c 'echo $$ > /sys/fs/cgroup/unit/cgroup.procs
exec {python} -m pytest -p no:cacheprovider -q --color=no {tests}'
echo "status $?"
echo o > /proc/sysrq-trigger
sleep 60
"""
"""The first process inside. The tests get a group of their own, as a unit of systemd would have."""


@pytest.mark.skipif(INSIDE not in os.environ, reason="runs inside User-Mode Linux only")
def test_version_2_is_chosen_here(place: Path) -> None:
    backend = ProcessBackend(place, "north", NODES)
    assert (backend.driver, backend.warnings) == ("v2", ())
    mounts = tuple(read_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8")))
    own = read_own_groups(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    assert own == {"": "/unit/hanse-daemon"}
    assert find_v2(mounts, own, "x").bases[0].path == Path("/sys/fs/cgroup/unit/x")


@pytest.mark.skipif(INSIDE in os.environ, reason="is inside already")
@pytest.mark.skipif(shutil.which("linux.uml") is None, reason="User-Mode Linux is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root inside")
def test_the_process_backend_works_with_version_2(tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    for parent in (place, *place.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)  # tasks are somebody else, and must get there
    init = tmp_path / "init"
    init.write_text(
        INIT.format(
            tmp=place,
            root=ROOT,
            inside=INSIDE,
            python=sys.executable,
            tests=" ".join(f"tests/live/backends/{name}.py" for name in TESTS),
        ),
        encoding="utf-8",
    )
    init.chmod(0o755)
    command = ["linux.uml", "mem=900M", "quiet", "root=/dev/root", "rootfstype=hostfs", "rw", f"init={init}"]
    done = subprocess.run(
        [*command, "con0=fd:0,fd:1", "con=null"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOOT_SECONDS_MAX,
        check=False,
        env={**os.environ, "TMPDIR": "/dev/shm"},
    )
    assert "status 0" in done.stdout, done.stdout[-5_000:]
    ran = "".join(re.findall(r"^([.s]+) +\[", done.stdout, flags=re.MULTILINE))
    assert ran.count(".") > 50
