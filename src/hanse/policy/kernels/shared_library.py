"""Shared libraries that the package's build step compiles beside their sources, and their loading.

A library is used only if it was built from the files beside it: another one might give other answers.
"""

import ctypes
import zlib
from importlib.resources.abc import Traversable
from typing import TypeVar

Library = TypeVar("Library", bound=ctypes.CDLL)


def source_names(here: Traversable) -> list[str]:
    """Return the source files of a folder's library, in the order of its checksum."""
    return sorted(entry.name for entry in here.iterdir() if entry.name.endswith((".c", ".h")))


def open_library(here: Traversable, name: str, kind: type[Library]) -> tuple[Library | None, str]:
    """Return the library of this name in a folder, or None and the reason why there is none.

    ``kind``: ``ctypes.PyDLL`` keeps the interpreter's lock during a call, ``ctypes.CDLL`` releases it.
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
