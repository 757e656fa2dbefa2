"""Shared libraries that the package's own build step compiles beside their sources, and how they are opened.

A library is used only if it was built from the very files that lie beside it: another one might answer
otherwise.
"""

import ctypes
import zlib
from importlib.resources.abc import Traversable
from typing import TypeVar

Library = TypeVar("Library", bound=ctypes.CDLL)


def source_names(here: Traversable) -> list[str]:
    """The files that the library of a folder is built from, in the order in which their sum is taken."""
    return sorted(entry.name for entry in here.iterdir() if entry.name.endswith((".c", ".h")))


def open_library(here: Traversable, name: str, kind: type[Library]) -> tuple[Library | None, str]:
    """The library of this name in a folder, or None and the reason why there is none to use.

    ``kind``: ``ctypes.PyDLL`` keeps the interpreter's lock during a call, ``ctypes.CDLL`` lets go of it.
    """
    names = sorted(entry.name for entry in here.iterdir())
    found = [file for file in names if file.startswith(name) and file.endswith(".so")]
    if not found:
        return None, f"{name}.so is not built"
    try:
        library = kind(str(here / found[0]))
        library.hanse_source_crc.restype = ctypes.c_uint32
        built_from = library.hanse_source_crc()
    except (OSError, AttributeError) as error:
        return None, f"{found[0]} does not load: {error}"
    crc = 0
    for file in source_names(here):
        crc = zlib.crc32((here / file).read_bytes(), crc)
    if built_from != crc:
        return None, f"{found[0]} was built from other sources: build it again"
    return library, ""
