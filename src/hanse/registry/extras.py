"""Extras: optional packages of Hanse, by module, and the command that installs them."""

import json
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hanse.registry.entry_points import OWN_PACKAGE

EXTRAS: Final = {"torch": "learn", "gymnasium": "learn", "pettingzoo": "learn", "pyarrow": "report"}
"""Modules that commands import when they need them, with the extra of ``pyproject.toml`` that has them."""
_ROOT: Final = Path(__file__).resolve().parents[3]
"""Root of the copy of the repository, if this package runs from one."""


def find_missing_extra(error: ModuleNotFoundError) -> tuple[str, str] | None:
    """Return the package that is not installed, and its extra; None if the error has another cause."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS or find_spec(package) is not None:
        return None
    return package, EXTRAS[package]


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, wherever it came from."""
    pip = "pip" if find_spec("pip") is not None else f"pip --python {sys.executable}"
    if (_ROOT / "pyproject.toml").is_file():
        return f"{pip} install -e '{_ROOT}[{extra}]'"
    return f"{pip} install '{_installed_from() or OWN_PACKAGE}[{extra}]'"


def _installed_from() -> str:
    """Return the folder from which this package was installed; empty: from an index."""
    try:
        origin = json.loads(metadata.distribution(OWN_PACKAGE).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    url = urlsplit(origin.get("url", ""))
    return unquote(url.path) if url.scheme == "file" else ""
