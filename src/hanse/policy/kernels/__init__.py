"""Inner loops over columns: compiled when the shared library is there, in NumPy otherwise.

Both backends give equal answers, so a run may be repeated on another machine. ``BACKEND`` names the backend
in use, ``NATIVE_LOAD_ERROR`` the reason why it is not the compiled one (empty if it is). ``numpy_kernels``
defines the kernels.
"""

from typing import Final

from hanse.policy.kernels import c_finish, c_kernels, numpy_finish, numpy_kernels
from hanse.policy.kernels.finish_columns import KNOTS, FinishColumns, FinishJob, Floats
from hanse.policy.kernels.numpy_kernels import BEST_FIT, CHEAPEST, COUNT_MAX, FIRST, SPREAD, WANTED_MAX

NATIVE_LOAD_ERROR: Final = c_kernels.LOAD_ERROR
BACKEND: Final = "numpy" if NATIVE_LOAD_ERROR else "native"

pick: Final = numpy_kernels.pick if NATIVE_LOAD_ERROR else c_kernels.pick
settle: Final = numpy_kernels.settle if NATIVE_LOAD_ERROR else c_kernels.settle
fit: Final = numpy_kernels.fit if NATIVE_LOAD_ERROR else c_kernels.fit
_finish: Final = numpy_finish if NATIVE_LOAD_ERROR else c_finish
finish_choose: Final = _finish.finish_choose
finish_ideal: Final = _finish.finish_ideal
finish_costs: Final = _finish.finish_costs
match: Final = numpy_kernels.match if NATIVE_LOAD_ERROR else c_kernels.match

__all__ = [
    "BACKEND",
    "BEST_FIT",
    "CHEAPEST",
    "COUNT_MAX",
    "FIRST",
    "KNOTS",
    "NATIVE_LOAD_ERROR",
    "SPREAD",
    "WANTED_MAX",
    "FinishColumns",
    "FinishJob",
    "Floats",
    "finish_choose",
    "finish_costs",
    "finish_ideal",
    "fit",
    "match",
    "pick",
    "settle",
]
