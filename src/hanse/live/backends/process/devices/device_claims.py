"""Claims of runners on the devices of their machine: two runners of one machine never assign the same device.

A claim is a file, named by the device, with the runner's directory in it. It outlives the runner, because its
tasks do. It ends when that directory is removed, or when the runner starts without the device. What another
runner has is withheld from the league.
"""

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.backends.process.devices.device_plan import DevicePlan
from hanse.model.hardware.devices import Device
from hanse.security.atomic_files import PRIVATE, replace

CLAIMS: Final = Path("/var/lib/hanse-devices")
"""Directory of the claims of root's runners; other users have one of their own (``claims_directory``)."""
CLAIM_BYTES_MAX: Final = 4_096
"""Bytes of a claim: a path."""
_LOCK: Final = "lock"


def claims_directory() -> Path:
    """Return the directory of this user's claims: users do not know of the devices of others."""
    uid = os.geteuid()
    return CLAIMS if uid == 0 else Path(f"/var/tmp/hanse-devices-{uid}")  # noqa: S108  its owner is checked


def claim_devices(plan: DevicePlan, directory: Path, claims: Path) -> DevicePlan:
    """Return the plan with the devices that the runner of this directory may assign; the others count as
    missing. Where no claim can be written the plan stands, with a warning."""
    if not plan.by_node and not claims.is_dir():
        return plan
    try:
        claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        if claims.stat().st_uid != os.geteuid():
            raise PermissionError(f"{claims} belongs to somebody else")
        lock = os.open(claims / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        warning = (
            f"other runners of this machine may assign the same devices: {claims} cannot be used ({error})"
        )
        return msgspec.structs.replace(plan, warnings=(*plan.warnings, warning)) if plan.by_node else plan
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holders = _read_holders(claims, directory)
        return _claim(plan, directory, claims, holders)
    finally:
        os.close(lock)


def _read_holders(claims: Path, directory: Path) -> dict[str, str]:
    """Return the directory of each other runner with a claim. Drop claims of this one, and of those whose
    directories are gone."""
    holders = {}
    for path in claims.iterdir():
        if path.name == _LOCK:
            continue
        holder = path.read_bytes()[:CLAIM_BYTES_MAX]
        if holder == os.fsencode(directory) or not holder or not Path(os.fsdecode(holder)).is_dir():
            path.unlink()
        else:
            holders[path.name] = os.fsdecode(holder)
    return holders


def _claim(plan: DevicePlan, directory: Path, claims: Path, holders: dict[str, str]) -> DevicePlan:
    by_node: dict[int, tuple[Device, ...]] = {}
    missing = dict(plan.missing)
    warnings = list(plan.warnings)
    for node, devices in plan.by_node.items():
        kept = []
        for device in devices:
            name = _claim_name(device)
            if name in holders:
                missing[node] = (*missing.get(node, ()), device)
                warnings.append(
                    f"{device.kind} {device.index} of node {node} is withheld: the runner of {holders[name]} "
                    f"has it"
                )
                continue
            kept.append(device)
            if name:
                replace(claims / name, os.fsencode(directory), PRIVATE)
        if kept:
            by_node[node] = tuple(kept)
    return msgspec.structs.replace(plan, by_node=by_node, missing=missing, warnings=tuple(warnings))


def _claim_name(device: Device) -> str:
    """Return the name of a device's claim; empty: nothing outside of its runner knows it."""
    identity = os.path.realpath(device.paths[0]) if device.paths else device.uuid
    return hashlib.blake2b(os.fsencode(identity), digest_size=16).hexdigest() if identity else ""
