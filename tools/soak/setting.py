"""The league of a soak, on a home of its own, and the program that its tasks run."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.live.harness import LiveLeague, open_directory, stop_launchers

BROKERS = ("b1", "b2", "b3")
CLUSTERS = ("north", "south", "west")
RUNNER = "far"
SMALL = ("b3", "north", RUNNER)
"""A broker, a warden and a runner that have disks of their own, which are filled."""
DISK_MEGABYTES = 192
NODES = 3
CPUS = 4
SLOTS = 4
LEAGUE = f"""
league: soak
timings: {{runner_lease: 4s, cluster_lease: 8s, suspect_after: 3s, lease_grace: 500ms, start_deadline: 6s}}
brokers: [{{name: b1}}, {{name: b2}}, {{name: b3}}]
clusters:
  - {{name: north, nodes: [{{count: {NODES}, cpus: {CPUS}, memory: 1GiB, resources: {{slots: {SLOTS}}}}}]}}
  - {{name: south, nodes: [{{count: {NODES}, cpus: {CPUS}, memory: 1GiB, resources: {{slots: {SLOTS}}}}}]}}
  - name: west
    runners: [{{name: {RUNNER}}}]
    nodes:
      - {{cpus: {CPUS}, memory: 1GiB, resources: {{slots: {SLOTS}}}}}
      - {{count: {NODES - 1}, cpus: {CPUS}, memory: 1GiB, resources: {{slots: {SLOTS}}}, runner: {RUNNER}}}
"""
ROOM = {
    f"{cluster}/{node}": {"cpu": CPUS * 1_000, "slots": SLOTS}
    for cluster in CLUSTERS
    for node in range(NODES)
}


class Setting(NamedTuple):
    """Where a soak takes place."""

    live: LiveLeague
    log: Path
    """What the tasks write."""
    program: Path
    """What they run."""
    disks: dict[str, Path]
    """Member -> its small disk, if there are any."""


@contextmanager
def setting() -> Iterator[Setting]:
    """A league that is up; afterwards it is gone with all its processes."""
    with open_directory() as directory, ExitStack() as stack:
        log, program = directory / "lives", directory / "life"
        log.touch()
        log.chmod(0o666)
        _compile(program)
        live = LiveLeague(directory / "home", LEAGUE)
        disks = {name: live.home.member(name) for name in SMALL} if os.geteuid() == 0 else {}
        for disk in disks.values():
            stack.enter_context(_small_disk(disk))
        stack.callback(stop_launchers, directory)
        stack.callback(live.close)
        live.start().settle()
        yield Setting(live, log, program, disks)


def _compile(program: Path) -> None:
    source = Path(__file__).with_name("life.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the soak compiles a small program for its tasks: install a C compiler (cc or gcc)")
    subprocess.run([compiler, "-std=gnu99", "-O1", "-o", program, source], check=True)  # noqa: S603  our own
    program.chmod(0o755)


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """Put a member's directory, as it was founded, onto a disk of its own."""
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    modes = {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()}
    options = f"size={DISK_MEGABYTES}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)  # noqa: S603, S607
    try:
        for name, content in files.items():
            (place / name).write_bytes(content)
            (place / name).chmod(modes[name])
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)  # noqa: S603, S607
