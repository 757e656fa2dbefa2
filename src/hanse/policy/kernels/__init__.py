"""Inner loops over columns: compiled when the shared library is there, in NumPy otherwise.

Both backends give equal answers, so a run may be repeated on another machine. ``BACKEND`` names the backend
in use, ``NATIVE_LOAD_ERROR`` the reason why it is not the compiled one (empty if it is). ``numpy_kernels``
defines the kernels.
"""

from typing import Final

from hanse.policy.kernels import c_kernels, numpy_kernels
from hanse.policy.kernels.numpy_kernels import BEST_FIT, CHEAPEST, COUNT_MAX, FIRST, SPREAD, WANTED_MAX

NATIVE_LOAD_ERROR: Final = c_kernels.LOAD_ERROR
BACKEND: Final = "numpy" if NATIVE_LOAD_ERROR else "native"

pick: Final = numpy_kernels.pick if NATIVE_LOAD_ERROR else c_kernels.pick
settle: Final = numpy_kernels.settle if NATIVE_LOAD_ERROR else c_kernels.settle
fit: Final = numpy_kernels.fit if NATIVE_LOAD_ERROR else c_kernels.fit
match: Final = numpy_kernels.match if NATIVE_LOAD_ERROR else c_kernels.match

__all__ = [
    "BACKEND",
    "BEST_FIT",
    "CHEAPEST",
    "COUNT_MAX",
    "FIRST",
    "NATIVE_LOAD_ERROR",
    "SPREAD",
    "WANTED_MAX",
    "fit",
    "match",
    "pick",
    "settle",
]
