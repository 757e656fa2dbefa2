"""Loader of the shared library of worlds, if it was built from the adjacent source files."""

import ctypes
from importlib.resources import files
from typing import Final

from hanse.policy.kernels.shared_library import open_library


def _declare_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    address, number = ctypes.c_void_p, ctypes.c_int64
    functions = {
        "make": ([address, address, address], address),
        "free": ([address], None),
        "start": ([address, number, number, number], number),
        "stage": ([address, number, number, number], number),
        "withdraw": ([address, number, number], None),
        "next": ([address], number),
        "advance": ([address, number, address, number], number),
        "wrong": ([address], ctypes.c_char_p),
        "sums": ([address, address, address], None),
        "lost": ([address, address], None),
        "policy": ([number], ctypes.c_char_p),
        "run": ([address, address, address], address),
        "play": ([address, number], number),
        "close": ([address], None),
    }
    for name, (arguments, result) in functions.items():
        function = getattr(library, f"hanse_world_{name}")
        function.argtypes, function.restype = arguments, result
    return library


def _policy_numbers(library: ctypes.CDLL) -> dict[str, int]:
    numbers: dict[str, int] = {}
    while name := library.hanse_world_policy(len(numbers)).decode():
        numbers[name] = len(numbers)
    return numbers


_HANDLE, LOAD_PROBLEM = open_library(files(__package__), "_world", ctypes.CDLL)
"""``LOAD_PROBLEM``: reason why compiled worlds cannot be used; empty if they can."""
LIBRARY: Final = _declare_functions(_HANDLE) if _HANDLE is not None else None
POLICY_NUMBERS: Final = _policy_numbers(LIBRARY) if LIBRARY is not None else {}
"""Number of each compiled policy by name."""
