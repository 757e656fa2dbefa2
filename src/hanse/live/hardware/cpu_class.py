"""Class of a machine's CPUs: machines of one class are taken to be equally fast.

The class is ``vendor-design-rate-cores``, such as ``intel-cascadelake-2.5GHz-20c``, in lower case but for the
unit. Of each part:

- *vendor*: ``intel``, ``amd``, ``arm``, ...; left out if unknown.
- *design*: by the tables of ``microarchitectures``. Unknown numbers stand for themselves
  (``family6-model250``); without numbers it is the name of the model, shortened to letters and digits.
- *rate*: the nominal one, in tenths of GHz: from the name (``@ 2.50GHz``), else as the kernel gives the base
  or the largest rate; left out if unknown, as in most virtual machines of AMD. Never the present rate.
- *cores*: physical cores that the machine has; with several sockets ``2x20c``.

So the class is the same at every start, and does not depend on the load, the kernel's microcode or turbo.
"""

import re
from typing import Final

from hanse.live.hardware.cpu_identity import CpuIdentity
from hanse.live.hardware.microarchitectures import INTEL_FAMILY, amd_design, intel_design

_RATE: Final = re.compile(r"@\s*([0-9]+(?:\.[0-9]+)?)\s*GHz", re.IGNORECASE)
_KHZ_PER_TENTH: Final = 100_000
NAME_CHARACTERS_MAX: Final = 40
"""Characters of a name in a class."""


def cpu_class(cpu: CpuIdentity, sockets: int, cores: int, nominal_khz: int) -> str:
    """Return the class; empty: nothing is known. ``nominal_khz`` is the kernel's rate; 0: it gives none."""
    parts = [cpu.vendor, _design(cpu), _rate(cpu.name, nominal_khz), _cores(sockets, cores)]
    known = [part for part in parts if part]
    return "-".join(known) if any(parts[:2]) else ""


def _design(cpu: CpuIdentity) -> str:
    if cpu.part:
        return cpu.part
    found = ""
    if cpu.vendor == "intel" and cpu.family == INTEL_FAMILY:
        found = intel_design(cpu.model, cpu.stepping)
    elif cpu.vendor in ("amd", "hygon"):
        found = amd_design(cpu.family, cpu.model)
    if found:
        return found
    if cpu.family >= 0 and cpu.model >= 0:
        return f"family{cpu.family}-model{cpu.model}"
    plain = re.sub(r"[^a-z0-9]+", "-", cpu.name.partition("@")[0].lower())
    return plain[:NAME_CHARACTERS_MAX].strip("-")


def _rate(name: str, nominal_khz: int) -> str:
    found = _RATE.search(name)
    tenths = round(float(found[1]) * 10) if found else round(nominal_khz / _KHZ_PER_TENTH)
    return f"{tenths // 10}.{tenths % 10}GHz" if tenths else ""


def _cores(sockets: int, cores: int) -> str:
    if not cores:
        return ""
    return f"{sockets}x{cores // sockets}c" if sockets > 1 and cores % sockets == 0 else f"{cores}c"
