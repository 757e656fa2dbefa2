"""Names of CPU designs by the numbers that CPUs give: public tables of Intel, AMD and ARM.

A number that is missing here is no fault: the class then contains the numbers themselves.
"""

from typing import Final

X86_VENDORS: Final = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "HygonGenuine": "hygon",
    "CentaurHauls": "centaur",
}
"""Vendors by ``vendor_id``."""

_INTEL: Final = {
    "sandybridge": (0x2A, 0x2D),
    "ivybridge": (0x3A, 0x3E),
    "haswell": (0x3C, 0x3F, 0x45, 0x46),
    "broadwell": (0x3D, 0x47, 0x4F, 0x56),
    "skylake": (0x4E, 0x5E, 0x55),
    "kabylake": (0x8E, 0x9E),
    "cometlake": (0xA5, 0xA6),
    "icelake": (0x6A, 0x6C, 0x7D, 0x7E),
    "tigerlake": (0x8C, 0x8D),
    "rocketlake": (0xA7,),
    "alderlake": (0x97, 0x9A),
    "raptorlake": (0xB7, 0xBA, 0xBF),
    "meteorlake": (0xAA, 0xAC),
    "sapphirerapids": (0x8F,),
    "emeraldrapids": (0xCF,),
    "graniterapids": (0xAD, 0xAE),
    "sierraforest": (0xAF,),
}
INTEL_MODELS: Final = {model: name for name, models in _INTEL.items() for model in models}
"""Designs of family 6 by model. Model 0x55 is three designs, by stepping: ``intel_design``."""
INTEL_FAMILY: Final = 6
_SKYLAKE_SERVER: Final = 0x55
CASCADELAKE_STEPPINGS: Final = range(5, 8)
COOPERLAKE_STEPPING_MIN: Final = 10

AMD_DESIGNS: Final = (
    (0x17, 0x00, 0x2F, "zen"),
    (0x17, 0x30, 0xFF, "zen2"),
    (0x19, 0x00, 0x0F, "zen3"),
    (0x19, 0x10, 0x1F, "zen4"),
    (0x19, 0x20, 0x5F, "zen3"),
    (0x19, 0x60, 0xAF, "zen4"),
    (0x1A, 0x00, 0xFF, "zen5"),
)
"""Designs by family and a range of models."""

ARM_IMPLEMENTERS: Final = {
    0x41: "arm",
    0x43: "cavium",
    0x46: "fujitsu",
    0x48: "hisilicon",
    0x51: "qualcomm",
    0x61: "apple",
    0xC0: "ampere",
}
ARM_PARTS: Final = {
    (0x41, 0xD03): "cortex-a53",
    (0x41, 0xD07): "cortex-a57",
    (0x41, 0xD08): "cortex-a72",
    (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD0C): "neoverse-n1",
    (0x41, 0xD40): "neoverse-v1",
    (0x41, 0xD49): "neoverse-n2",
    (0x41, 0xD4F): "neoverse-v2",
    (0x41, 0xD84): "neoverse-v3",
    (0x41, 0xD8E): "neoverse-n3",
    (0x43, 0x0AF): "thunderx2",
    (0x46, 0x001): "a64fx",
    (0x48, 0xD01): "tsv110",
    (0xC0, 0xAC3): "ampere1",
    (0xC0, 0xAC4): "ampere1a",
}
"""Designs by implementer and part."""


def intel_design(model: int, stepping: int) -> str:
    """Return the design of a CPU of family 6; empty: unknown."""
    if model == _SKYLAKE_SERVER and stepping in CASCADELAKE_STEPPINGS:
        return "cascadelake"
    if model == _SKYLAKE_SERVER and stepping >= COOPERLAKE_STEPPING_MIN:
        return "cooperlake"
    return INTEL_MODELS.get(model, "")


def amd_design(family: int, model: int) -> str:
    """Return the design of an AMD CPU; empty: unknown."""
    for of_family, first, last, name in AMD_DESIGNS:
        if family == of_family and first <= model <= last:
            return name
    return ""
