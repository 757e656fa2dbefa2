"""NVIDIA's library for management, asked in a process of its own: a broken driver may hang or crash it.

``python -m hanse.live.hardware.nvml [LIBRARY]`` writes the GPUs as JSON.
"""

import ctypes
import subprocess
import sys
from typing import Final

import msgspec

from hanse.model.hardware.devices import DEVICES_PER_NODE_MAX, NVIDIA, Device

LIBRARY: Final = "libnvidia-ml.so.1"
ASK_SECONDS_MAX: Final = 20.0
"""Seconds for an answer: a driver that loads firmware takes a few."""
_NAME_BYTES: Final = 96
"""Room for a name or a uuid, as the library's header asks for."""
_DEVICES: Final = msgspec.json.Decoder(tuple[Device, ...])


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def ask_nvml(library: str = LIBRARY) -> tuple[Device, ...] | None:
    """Return the GPUs that the library lists; None: it is missing, or does not answer."""
    command = [sys.executable, "-m", "hanse.live.hardware.nvml", library]
    try:
        done = subprocess.run(  # noqa: S603  this module
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS_MAX, check=False
        )
        return _DEVICES.decode(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError):
        return None


def read_nvml(library: str) -> tuple[Device, ...]:
    """Return the GPUs, by calling the library in this process. Raises ``OSError`` if that fails."""
    nvml = ctypes.CDLL(library)
    if nvml.nvmlInit_v2() != 0:
        raise OSError("the driver does not answer")
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        raise OSError("the driver does not count its devices")
    found = []
    for index in range(min(count.value, DEVICES_PER_NODE_MAX)):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
            found.append(_read_device(nvml, handle, index))
    nvml.nvmlShutdown()
    return tuple(found)


def _read_device(nvml: ctypes.CDLL, handle: ctypes.c_void_p, index: int) -> Device:
    """Return one GPU. Its file has the driver's minor number, which need not be the index."""
    minor, memory = ctypes.c_uint(), _Memory()
    has_minor = nvml.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor)) == 0
    has_memory = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    return Device(
        index=index,
        paths=(f"/dev/nvidia{minor.value}",) if has_minor else (),
        model=_read_text(nvml.nvmlDeviceGetName, handle),
        memory=int(memory.total) if has_memory else 0,
        uuid=_read_text(nvml.nvmlDeviceGetUUID, handle),
        vendor=NVIDIA,
    )


def _read_text(function: "ctypes._NamedFuncPointer", handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_NAME_BYTES)
    status = function(handle, buffer, ctypes.c_uint(_NAME_BYTES))
    return buffer.value.decode("utf-8", "replace") if status == 0 else ""


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_nvml(*sys.argv[1:2] or [LIBRARY])))
