"""Identity of a CPU from the text of ``/proc/cpuinfo``, of x86, ARM and other machines."""

import re

import msgspec

from hanse.live.hardware.microarchitectures import ARM_IMPLEMENTERS, ARM_PARTS, X86_VENDORS

_SPACES = re.compile(r"\s+")


class CpuIdentity(msgspec.Struct, frozen=True):
    """CPU as ``/proc/cpuinfo`` names it: the first of the machine."""

    name: str = ""
    """Name of the model, for people."""
    vendor: str = ""
    """``intel``, ``amd``, ``arm``, ...; empty: unknown."""
    family: int = -1
    model: int = -1
    stepping: int = -1
    part: str = ""
    """Design of an ARM CPU, such as ``neoverse-n1``."""


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """Return the lines ``name : value`` of each block, with lower-case names."""
    blocks: list[dict[str, str]] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip().lower(), value.strip())
        if fields:
            blocks.append(fields)
    return blocks


def identify_cpu(blocks: list[dict[str, str]]) -> CpuIdentity:
    """Return the identity that the blocks of ``parse_cpuinfo`` give."""
    fields: dict[str, str] = {}
    for block in blocks:
        for name, value in block.items():
            fields.setdefault(name, value)
    if "cpu implementer" in fields:
        return _arm_identity(fields)
    name = fields.get("model name") or fields.get("cpu") or fields.get("cpu model") or fields.get("uarch", "")
    vendor_id = fields.get("vendor_id", "")
    return CpuIdentity(
        _SPACES.sub(" ", name).strip(),
        X86_VENDORS.get(vendor_id, ""),
        _number(fields.get("cpu family", "")),
        _number(fields.get("model", "")),
        _number(fields.get("stepping", "")),
    )


def _arm_identity(fields: dict[str, str]) -> CpuIdentity:
    """ARM CPUs give numbers of who made them and of the design, and mostly no name."""
    implementer, part = _number(fields["cpu implementer"]), _number(fields.get("cpu part", ""))
    vendor = ARM_IMPLEMENTERS.get(implementer, f"implementer{implementer}")
    design = ARM_PARTS.get((implementer, part), f"part{part}" if part >= 0 else "")
    name = fields.get("model name", "") or f"{vendor} {design}".strip()
    return CpuIdentity(name, vendor, part=design)


def _number(text: str) -> int:
    try:
        return int(text, 0) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return -1
