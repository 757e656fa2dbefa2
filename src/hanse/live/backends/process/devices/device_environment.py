"""Variables by which a task learns of its devices, and by which libraries find no others.

NVIDIA's libraries look at ``CUDA_VISIBLE_DEVICES``, its container tools at ``NVIDIA_VISIBLE_DEVICES``, AMD's
runtime at ``ROCR_VISIBLE_DEVICES``. AMD's HIP looks at ``HIP_VISIBLE_DEVICES``, or else at CUDA's variable,
and counts what its runtime has left from 0 on.
"""

from typing import Final

from hanse.model.hardware.devices import AMD, GPU, Device

DEVICES: Final = "HANSE_DEVICES"
"""Variable with the files of all assigned devices; with ``_KIND`` behind it, of one kind."""
NO_GPUS: Final = {
    "CUDA_VISIBLE_DEVICES": "",
    "NVIDIA_VISIBLE_DEVICES": "void",
    "ROCR_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "-1",
}
"""Variables of a task that has no GPU where GPUs are assigned. HIP takes an empty text for no choice."""
_SEPARATOR: Final = ","


def device_variables(assigned: tuple[Device, ...], node_devices: tuple[Device, ...]) -> dict[str, str]:
    """Return the variables of a task, given its devices and all of its node, which may have none."""
    if not node_devices:
        return {}
    env = {DEVICES: _SEPARATOR.join(path for device in assigned for path in device.paths[:1])}
    for kind in dict.fromkeys(device.kind for device in node_devices):
        own = (device for device in assigned if device.kind == kind)
        env[f"{DEVICES}_{kind.upper()}"] = _SEPARATOR.join(_label(device) for device in own)
    if any(device.kind == GPU for device in node_devices):
        env |= _gpu_variables(tuple(device for device in assigned if device.kind == GPU))
    return env


def _label(device: Device) -> str:
    """Return the file of a device, or its index if it has none."""
    return device.paths[0] if device.paths else str(device.index)


def _gpu_variables(gpus: tuple[Device, ...]) -> dict[str, str]:
    amd = [gpu for gpu in gpus if gpu.vendor == AMD]
    others = [gpu for gpu in gpus if gpu.vendor != AMD]
    env = dict(NO_GPUS)
    if amd:
        ranks = _SEPARATOR.join(str(rank) for rank in range(len(amd)))
        env["ROCR_VISIBLE_DEVICES"] = _SEPARATOR.join(str(gpu.index) for gpu in amd)
        env |= {"HIP_VISIBLE_DEVICES": ranks, "CUDA_VISIBLE_DEVICES": ranks}
    if others:
        has_uuids = all(gpu.uuid for gpu in others)
        names = _SEPARATOR.join(gpu.uuid if has_uuids else str(gpu.index) for gpu in others)
        env |= {"CUDA_VISIBLE_DEVICES": names, "NVIDIA_VISIBLE_DEVICES": names}
        if not has_uuids:  # else the library sorts by speed, and the driver's numbers mean others
            env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return env
