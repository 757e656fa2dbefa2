"""GPUs of a machine: NVIDIA's by its library or its driver's files, AMD's by the kernel's list."""

import re
from collections.abc import Callable
from typing import Final

from hanse.live.hardware.host_files import HostFiles, numbered
from hanse.live.hardware.nvml import ask_nvml
from hanse.model.hardware.devices import AMD, DEVICE_TEXT_CHARACTERS_MAX, NVIDIA, Device

_NVIDIA_GPUS: Final = "proc/driver/nvidia/gpus"
_KFD_NODES: Final = "sys/class/kfd/kfd/topology/nodes"
_LINE: Final = re.compile(r"^([A-Za-z ]+):[ \t]*(.*?)[ \t]*$", flags=re.MULTILINE)


def detect_gpus(
    host: HostFiles, ask: Callable[[], tuple[Device, ...] | None] = ask_nvml
) -> tuple[Device, ...]:
    """Return all GPUs. ``ask`` asks NVIDIA's library; it is called only if there is such a driver."""
    nvidia: tuple[Device, ...] = ()
    if host.has("proc/driver/nvidia") or host.has("dev/nvidiactl"):
        nvidia = ask() or _nvidia_by_files(host)
    return nvidia + _amd_gpus(host)


def _nvidia_by_files(host: HostFiles) -> tuple[Device, ...]:
    """Return the GPUs by ``/proc/driver/nvidia``, else by the device files alone. In the order of the bus, as
    the driver numbers them with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``."""
    found: list[Device] = []
    for place in host.entries(_NVIDIA_GPUS):
        fields = parse_nvidia_information(host.read(f"{_NVIDIA_GPUS}/{place}/information"))
        minor = fields.get("Device Minor", "")
        uuid = fields.get("GPU UUID", "")
        found.append(
            Device(
                index=len(found),
                paths=(f"/dev/nvidia{minor}",) if minor.isdecimal() else (),
                model=fields.get("Model", "")[:DEVICE_TEXT_CHARACTERS_MAX],
                uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else "",
                vendor=NVIDIA,
            )
        )
    if found:
        return tuple(found)
    minors = numbered(host.entries("dev"), "nvidia")
    return tuple(Device(index=minor, paths=(f"/dev/nvidia{minor}",), vendor=NVIDIA) for minor in minors)


def parse_nvidia_information(text: str) -> dict[str, str]:
    """Return the lines ``name: value`` of an ``information`` file of the driver."""
    return {found[1].strip(): found[2] for found in _LINE.finditer(text)}


def _amd_gpus(host: HostFiles) -> tuple[Device, ...]:
    """Return the GPUs that AMD's compute driver lists, numbered as its runtime does; CPUs are listed, too."""
    found: list[Device] = []
    for number in numbered([f"node{name}" for name in host.entries(_KFD_NODES)], "node"):
        place = f"{_KFD_NODES}/{number}"
        if not host.read_number(f"{place}/gpu_id"):
            continue
        properties = parse_properties(host.read(f"{place}/properties"))
        render = properties.get("drm_render_minor", 0)
        drm = f"sys/class/drm/renderD{render}/device"
        cards = numbered(host.entries(f"{drm}/drm"), "card")
        unique = properties.get("unique_id", 0)
        found.append(
            Device(
                index=len(found),
                paths=(
                    *([f"/dev/dri/renderD{render}"] if render else []),
                    *[f"/dev/dri/card{card}" for card in cards[:1]],
                ),
                model=(host.read(f"{drm}/product_name") or host.read(f"{place}/name"))[
                    :DEVICE_TEXT_CHARACTERS_MAX
                ],
                memory=host.read_number(f"{drm}/mem_info_vram_total"),
                uuid=f"GPU-{unique:016x}" if unique else "",
                vendor=AMD,
            )
        )
    return tuple(found)


def parse_properties(text: str) -> dict[str, int]:
    """Return the lines ``name number`` of a ``properties`` file."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isascii() and number.isdecimal() and len(number) <= 20:
            found[name] = int(number)
    return found
