"""Limits of a task's processes: control groups where this process can write them.

There are three drivers. ``v2`` and ``v1`` put every attempt into control groups of its own, below the
daemon's own group: the daemon's limits hold for its tasks too, and no group outside changes. ``rlimit`` is
for hosts with no writable group: its limits per process stop accidents, not attackers; it warns. The
supervisor of an attempt makes and removes the groups; this module chooses groups and settings.

In version 2 a group with controllers for its children may hold no process itself: there the daemon moves into
a group ``hanse-daemon`` of its own. Under systemd give the unit ``Delegate=yes`` and ``KillMode=process``, or
a restart of the daemon would end its tasks.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from hanse.model.resources import Resources

DriverName = Literal["v2", "v1", "rlimit"]
CONTROLLERS: Final = ("cpu", "memory", "pids")
PERIOD_MICROSECONDS: Final = 100_000
"""Microseconds over which a CPU quota is counted: the kernel's default."""
QUOTA_MICROSECONDS_MIN: Final = 1_000
"""The smallest quota that the kernel accepts, in microseconds."""
DAEMON_GROUP: Final = "hanse-daemon"
_UNLIMITED: Final = (
    "CPU time is not limited, memory only for each process by itself, processes only for all tasks together"
)
DEVICE_ROLE: Final = "d"
"""Role of a group of version 1 that fences devices, beside those that limit: ``with_device_group``."""
_ROLES: Final = {"cpu": "c", "cpuacct": "a", "memory": "m", "pids": "p"}


class CgroupMount(msgspec.Struct, frozen=True):
    """A mounted hierarchy of control groups."""

    version: int
    point: Path
    root: str
    """The group of the hierarchy that appears at ``point``."""
    controllers: tuple[str, ...]
    """Controllers of version 1; files of version 2 list its own."""


class CgroupBase(msgspec.Struct, frozen=True):
    """A directory for the groups of attempts."""

    role: str
    """``c``, ``a``, ``m``, ``p``, ``d``: cpu, cpuacct, memory, pids, devices of version 1.
    ``u``: version 2."""
    path: Path


class TaskLimits(msgspec.Struct, frozen=True):
    """A chosen driver with its directories."""

    driver: DriverName
    bases: tuple[CgroupBase, ...] = ()
    warnings: tuple[str, ...] = ()

    def make_directories(self) -> None:
        """Make the directories for attempts; raise ``OSError`` where the host forbids it."""
        for base in self.bases:
            if base.role == "u":
                _make_v2_directory(base.path)
            else:
                base.path.mkdir(exist_ok=True)

    def remove_directories(self) -> None:
        """Remove those directories if they are empty; the others stay."""
        for base in self.bases:
            try:
                base.path.rmdir()
            except OSError:  # in use, or missing
                continue

    def groups(
        self, size: Resources, pids_max: int, device_settings: tuple[str, ...] = ()
    ) -> tuple[bytes, ...]:
        """Return the groups of an attempt of this size, in the form of a start request."""
        found = []
        for base in self.bases:
            is_fence = base.role == DEVICE_ROLE
            settings = device_settings if is_fence else limit_settings(base.role, size, pids_max)
            lines = [f"{base.role}{base.path}", *settings, ""]
            found.append(b"".join(os.fsencode(line) + b"\0" for line in lines))
        return tuple(found)


def limit_settings(role: str, size: Resources, pids_max: int) -> list[str]:
    """Return ``file=value`` for each limit; a ``?`` marks files that some kernels lack.

    Without a request there is no guarantee: a task that asked for no CPU gets the idle time of the others.
    ``default_memory`` limits memory that was not asked for, before this call.
    """
    quota = max(QUOTA_MICROSECONDS_MIN, size.cpu * PERIOD_MICROSECONDS // 1_000)
    memory = size.memory // 4_096 * 4_096
    if role == "c":
        return [f"cpu.cfs_quota_us={quota}"] if size.cpu else ["cpu.shares=2"]
    if role == "m":
        limit = [f"memory.limit_in_bytes={memory}", f"?memory.memsw.limit_in_bytes={memory}"]
        return limit if memory else []
    if role == "p":
        return [f"pids.max={pids_max}"]
    if role == "a":
        return []  # it measures only
    assert role == "u", f"no group has the role {role!r}"
    lines = [f"cpu.max={quota} {PERIOD_MICROSECONDS}"] if size.cpu else ["cpu.weight=1"]
    if memory:
        lines += [f"memory.max={memory}", "?memory.swap.max=0", "?memory.oom.group=1"]
    return [*lines, f"pids.max={pids_max}"]


def choose_limits(driver: Literal["auto", "v2", "v1", "rlimit"], directory: Path) -> TaskLimits:
    """Return the requested driver, or with ``auto`` the best that works here.

    ``directory`` belongs to the runner: it names the groups. Raises ``OSError`` if a driver is requested by
    name and does not work.
    """
    name = group_name(directory)
    mounts = tuple(read_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")))
    own_groups = read_own_groups(Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace"))
    reasons = []
    for candidate, find_limits in (("v2", find_v2), ("v1", find_v1)):
        if driver not in (candidate, "auto"):
            continue
        try:
            limits = find_limits(mounts, own_groups, name)
            existed = any(base.path.exists() for base in limits.bases)
            limits.make_directories()
            if not existed:  # else another daemon may be using them
                limits.remove_directories()
        except OSError as error:
            if driver != "auto":
                raise
            reasons.append(f"{candidate}: {error.strerror or error}")
            continue
        return limits
    cause = f" ({'; '.join(reasons)})" if reasons else ""
    return TaskLimits(
        "rlimit",
        warnings=(f"no control groups can be used here{cause}: {_UNLIMITED}",),
    )


def with_device_group(limits: TaskLimits, directory: Path) -> TaskLimits:
    """Return limits with a group that fences devices, if a hierarchy of version 1 for it can be written."""
    mounts = read_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    own_groups = read_own_groups(Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace"))
    mount = next((each for each in mounts if "devices" in each.controllers), None)
    if mount is None or limits.driver == "rlimit":
        return limits
    here = group_directory(mount, own_groups.get("devices", "/"))
    base = CgroupBase(DEVICE_ROLE, here / group_name(directory))
    try:
        existed = base.path.exists()
        base.path.mkdir(exist_ok=True)
        if not existed:
            base.path.rmdir()
    except OSError:
        return limits
    return msgspec.structs.replace(limits, bases=(*limits.bases, base))


def has_memory_limit(driver: str) -> bool:
    """True if this driver limits the memory of tasks here; tried out as in ``choose_limits``."""
    probe = Path(f"/hanse-probe-{os.getpid()}")
    try:
        limits = choose_limits(cast("Literal['auto', 'v2', 'v1', 'rlimit']", driver), probe)
    except OSError:
        return True  # the daemon reports the fault, and does not start
    return any(base.role in "mu" for base in limits.bases)


def group_name(directory: Path) -> str:
    """Return the name of the group above all attempts of a runner: not secret, but unique to the runner."""
    return "hanse-" + hashlib.blake2b(os.fsencode(directory), digest_size=6).hexdigest()


def find_v1(mounts: tuple[CgroupMount, ...], own_groups: dict[str, str], name: str) -> TaskLimits:
    """Return the limits of version 1: a directory in each hierarchy. A warning names missing controllers."""
    bases: list[CgroupBase] = []
    missing: list[str] = []
    for controller, role in _ROLES.items():
        mount = next((each for each in mounts if controller in each.controllers), None)
        here = None if mount is None else group_directory(mount, own_groups.get(controller, "/"))
        if here is None or not os.access(here, os.W_OK):
            missing.append(controller)
        elif all(here / name != base.path for base in bases):  # cpu and cpuacct are often one hierarchy
            bases.append(CgroupBase(role, here / name))
    if not bases:
        raise OSError("no hierarchy of version 1 can be written")
    warning = f"not limited or measured here, for want of a control group: {', '.join(missing)}"
    return TaskLimits("v1", tuple(bases), (warning,) if missing else ())


def find_v2(mounts: tuple[CgroupMount, ...], own_groups: dict[str, str], name: str) -> TaskLimits:
    """Return the limits of version 2; raise ``OSError`` if a controller is missing."""
    mount = next((each for each in mounts if each.version == 2), None)
    if mount is None:
        raise OSError("version 2 is not mounted")
    here = group_directory(mount, own_groups.get("", "/"))
    if here.name == DAEMON_GROUP:
        here = here.parent
    available = (here / "cgroup.controllers").read_text(encoding="ascii").split()
    missing = [controller for controller in CONTROLLERS if controller not in available]
    if missing:
        raise OSError(f"version 2 has no controller for {', '.join(missing)} here")
    if not os.access(here, os.W_OK):
        raise OSError(f"{here} cannot be written")
    return TaskLimits("v2", (CgroupBase("u", here / name),))


def _make_v2_directory(base: Path) -> None:
    """Make a group whose children have controllers, below one whose children have them too."""
    parent = base.parent
    wanted = " ".join(f"+{controller}" for controller in CONTROLLERS)
    if (parent / "cgroup.type").exists():  # not the root, which alone may hold processes and controllers
        daemon = parent / DAEMON_GROUP
        daemon.mkdir(exist_ok=True)
        (daemon / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    (parent / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
    base.mkdir(exist_ok=True)
    (base / "cgroup.subtree_control").write_text(wanted, encoding="ascii")


def group_directory(mount: CgroupMount, group: str) -> Path:
    """Return the directory at which a group of a hierarchy appears."""
    if mount.root != "/" and (group == mount.root or group.startswith(mount.root + "/")):
        group = group[len(mount.root) :]
    is_visible = "/.." not in group  # else the group is outside of this namespace: take its root
    return mount.point / group.lstrip("/") if is_visible else mount.point


def read_mounts(mountinfo: str) -> Iterator[CgroupMount]:
    """Yield the hierarchies in the text of ``/proc/self/mountinfo``."""
    for line in mountinfo.splitlines():
        front, _, back = line.partition(" - ")
        fields, kinds = front.split(" "), back.split(" ")
        if len(fields) < 5 or len(kinds) < 3:
            continue
        point = Path(fields[4].replace("\\040", " "))
        if kinds[0] == "cgroup2":
            yield CgroupMount(2, point, fields[3], ())
        elif kinds[0] == "cgroup":
            yield CgroupMount(1, point, fields[3], tuple(kinds[2].split(",")))


def read_own_groups(cgroups: str) -> dict[str, str]:
    """Return this process's group by controller, from the text of ``/proc/self/cgroup``; version 2:
    ``""``."""
    found = {}
    for line in cgroups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path
    return found
