"""The shared library with the plain league, if it was built from the very files that lie beside it."""

import ctypes
import zlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

NAME: Final = "_plain"


def source_names(here: Traversable) -> list[str]:
    """The files that the library is built from, in the order in which their sum is taken."""
    return sorted(entry.name for entry in here.iterdir() if entry.name.endswith((".c", ".h")))


def open_library(here: Traversable) -> tuple[ctypes.CDLL | None, str]:
    """The library in a folder, or None and the reason why there is none to use: it is missing, or of other
    sources than those beside it."""
    names = sorted(entry.name for entry in here.iterdir())
    found = [name for name in names if name.startswith(NAME) and name.endswith(".so")]
    if not found:
        return None, "the compiled league is not built"
    try:
        library = ctypes.CDLL(str(here / found[0]))
        library.hanse_source_crc.restype = ctypes.c_uint32
        built_from = library.hanse_source_crc()
    except (OSError, AttributeError) as error:
        return None, f"{found[0]} does not load: {error}"
    crc = 0
    for name in source_names(here):
        crc = zlib.crc32((here / name).read_bytes(), crc)
    if built_from != crc:
        return None, f"{found[0]} was built from other sources: build it again"
    return library, ""


def _with_types(library: ctypes.CDLL) -> ctypes.CDLL:
    address, number = ctypes.c_void_p, ctypes.c_int64
    doors = {
        "make": ([address, address], address),
        "play": ([address, number], number),
        "read": ([address, address], None),
        "wrong": ([address], ctypes.c_char_p),
        "free": ([address], None),
    }
    for name, (arguments, result) in doors.items():
        door = getattr(library, f"hanse_plain_{name}")
        door.argtypes, door.restype = arguments, result
    return library


_FOUND, WHY_NOT = open_library(files(__package__))
"""``WHY_NOT``: why the compiled league cannot be used; empty if it can."""
LIBRARY: Final = _with_types(_FOUND) if _FOUND is not None else None
