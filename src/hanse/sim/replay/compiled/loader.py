"""Loader of the shared library of the compiled league, if it was built from the adjacent source files."""

import ctypes
from importlib.resources import files
from typing import Final

from hanse.policy.kernels.shared_library import open_library


def _declare_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    address, number = ctypes.c_void_p, ctypes.c_int64
    functions = {
        "make": ([address, address], address),
        "play": ([address, number], number),
        "read": ([address, address], None),
        "wrong": ([address], ctypes.c_char_p),
        "free": ([address], None),
    }
    for name, (arguments, result) in functions.items():
        function = getattr(library, f"hanse_plain_{name}")
        function.argtypes, function.restype = arguments, result
    return library


_HANDLE, LOAD_PROBLEM = open_library(files(__package__), "_plain", ctypes.CDLL)
"""``LOAD_PROBLEM``: reason why the compiled league cannot be used; empty if it can."""
LIBRARY: Final = _declare_functions(_HANDLE) if _HANDLE is not None else None
