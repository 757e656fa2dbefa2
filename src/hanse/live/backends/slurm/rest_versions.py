"""Negotiation of the version of slurmrestd's interface: the newest that both sides know.

A slurmrestd speaks several versions at once, the older ones for a few releases. The document that it serves
about itself lists them.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

DOCUMENT_PATH: Final = "/openapi/v3"
"""Path of the document that lists the versions."""
KNOWN_VERSIONS: Final = ("v0.0.38", "v0.0.37")
"""The versions that this driver knows, the newest first: of Slurm 22.05 and 21.08. Older ones do not report
how much of a node is in use; later ones write numbers and states in another form."""
_JOBS_PATH: Final = re.compile(r"/slurm/(v\d+(?:\.\d+)*)/jobs/?")
_OFFERED_MAX: Final = 20
"""Versions that are named in a sentence."""


def offered_versions(document: Mapping[str, Any]) -> list[str]:
    """Return the versions that can list jobs, from a slurmrestd's own document, the newest first."""
    paths = document.get("paths")
    found = [_JOBS_PATH.fullmatch(path) for path in paths] if isinstance(paths, dict) else []
    return sorted({match[1] for match in found if match is not None}, key=_sort_key, reverse=True)


def choose_version(versions: list[str]) -> str | None:
    """Return the newest version that both sides know; None if there is none."""
    return next((version for version in KNOWN_VERSIONS if version in versions), None)


def no_common_message(versions: list[str]) -> str:
    """Return the error message for no common version."""
    theirs = ", ".join(versions[:_OFFERED_MAX]) or "no version at all"
    return (
        f"slurmrestd offers {theirs}, and Hanse speaks {', '.join(KNOWN_VERSIONS)}: "
        f"load one of these there (-s openapi/{KNOWN_VERSIONS[0]}), or use the driver 'cli'"
    )


def _sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version[1:].split("."))
