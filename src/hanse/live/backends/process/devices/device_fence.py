"""Fence between tasks and devices that are not theirs: a control group, or a sandbox.

A control group of version 1 (``devices``) refuses to open device files; version 2 would need a program in
the kernel (eBPF), which is not written here. Bubblewrap shows a task of the sandbox its own devices only, and
puts a closed file over the others in the mode ``namespace``. Plain files are fenced by bubblewrap alone.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, cast

from hanse.league.config import ClusterEntry
from hanse.live.backends.process.cgroups import DEVICE_ROLE, TaskLimits, choose_limits, with_device_group
from hanse.live.backends.process.devices.device_plan import DevicePlan, plan_devices
from hanse.live.backends.process.sandbox import SandboxMode, choose_sandbox
from hanse.live.hardware.machine import this_machine
from hanse.model.hardware.devices import AMD, GPU, Device

CLOSED_FILE: Final = "closed"
"""File in the runner's directory that nobody may open: it lies over devices in a namespace."""
NVIDIA_CONTROLS: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Files that the programs of all GPUs of NVIDIA open."""
AMD_CONTROLS: Final = ("/dev/kfd",)


class DeviceFence:
    """Fence around the device files ``fenced`` of one runner, whose directory is ``directory``."""

    def __init__(self, fenced: tuple[str, ...], sandbox: SandboxMode, directory: Path) -> None:
        self._fenced = fenced
        self._sandbox = sandbox
        self._closed = directory / CLOSED_FILE
        if fenced and sandbox == "namespace" and not self._closed.exists():
            os.close(os.open(self._closed, os.O_CREAT | os.O_CLOEXEC, 0))

    def group_settings(self, assigned: tuple[Device, ...]) -> tuple[str, ...]:
        """Return the settings of the control group of a task, as ``cgroups.limit_settings`` does. The group
        may be one that an earlier task has left: so the task's own devices are allowed again."""
        own = _rules(_paths(assigned))
        allowed = [f"?devices.allow={rule}" for rule in own]
        denied = [f"devices.deny={rule}" for rule in _rules(self._fenced) if rule not in own]
        return (*allowed, *denied)

    def sandbox_words(self, assigned: tuple[Device, ...]) -> tuple[bytes, ...]:
        """Return bubblewrap's options for the devices of a task."""
        own = _paths(assigned)
        words: list[str] = []
        if self._sandbox == "bwrap":
            for path in (*own, *_controls(assigned)):
                words += ["--dev-bind-try", path, path]
        elif self._sandbox == "namespace":
            hidden = dict.fromkeys(os.path.realpath(path) for path in self._fenced if path not in own)
            for path in hidden:
                if Path(path).exists():
                    words += ["--ro-bind", str(self._closed), path]
        return tuple(os.fsencode(word) for word in words)


def fence_problem(fenced: tuple[str, ...], sandbox: str, limits: TaskLimits) -> str | None:
    """Return why tasks can open devices of other tasks, as a clause; None: they cannot, or there are none."""
    if not fenced or sandbox in ("bwrap", "namespace"):
        return None
    if not any(base.role == DEVICE_ROLE for base in limits.bases):
        return "control groups of version 1 with 'devices' cannot be used here"
    plain = [path for path in fenced if Path(path).exists() and not _rule(path)]
    return f"{plain[0]} is no device file, and no sandbox is around tasks" if plain else None


def device_warnings(plan: DevicePlan, sandbox: str, limits: TaskLimits) -> tuple[str, ...]:
    """Return what is not assigned or not fenced, as sentences without a full stop."""
    problem = fence_problem(plan.fenced, sandbox, limits)
    if problem is None:
        return plan.warnings
    return (*plan.warnings, f"devices are assigned, but tasks can open those of others: {problem}")


def find_device_warnings(entry: ClusterEntry) -> tuple[str, ...]:
    """Return what ``device_warnings`` would say of the runner inside a warden, on this machine. Raises
    ``OSError`` or ``LeagueError`` if that runner could not be."""
    settings = entry.backend
    plan = plan_devices(entry.nodes, this_machine().gpus, entry.own_runner)
    sandbox, _ = choose_sandbox(settings.sandbox)
    probe = Path(f"/hanse-probe-{os.getpid()}")
    limits = choose_limits(cast("Literal['auto', 'v2', 'v1', 'rlimit']", settings.limits), probe)
    return device_warnings(plan, sandbox, with_device_group(limits, probe))


def _paths(devices: Iterable[Device]) -> tuple[str, ...]:
    return tuple(path for device in devices for path in device.paths)


def _controls(assigned: tuple[Device, ...]) -> tuple[str, ...]:
    """Return the files that the task's GPUs need beside their own."""
    gpus = [device for device in assigned if device.kind == GPU]
    amd = AMD_CONTROLS if any(gpu.vendor == AMD for gpu in gpus) else ()
    return amd + (NVIDIA_CONTROLS if any(gpu.vendor != AMD for gpu in gpus) else ())


def _rules(paths: Iterable[str]) -> list[str]:
    return [rule for path in paths if (rule := _rule(path))]


def _rule(path: str) -> str:
    """Return a device file as a control group names it, with reading, writing and making; empty: it is
    none."""
    try:
        status = Path(path).stat()
    except OSError:
        return ""
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
        return f"{kind} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)} rwm"
    return ""
