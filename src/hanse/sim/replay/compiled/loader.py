"""Loader of the shared library of the compiled league, if it was built from the adjacent source files."""

import ctypes
from importlib.resources import files
from typing import Final

from hanse.policy.kernels.loader import open_library


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


_FOUND, WHY_NOT = open_library(files(__package__), "_plain", ctypes.CDLL)
"""``LOAD_PROBLEM``: reason why the compiled league cannot be used; empty if it can."""
LIBRARY: Final = _with_types(_FOUND) if _FOUND is not None else None
