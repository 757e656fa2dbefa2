"""The inner loops over columns: compiled when the shared library is there, in NumPy otherwise.

Both backends give equal answers, so a run may be repeated on another machine. ``BACKEND`` tells which one is
at work, ``WHY_NOT_NATIVE`` why the compiled one is not (empty if it is). What each kernel means is said in
``twin``.
"""

from typing import Final

from hanse.policy.kernel import native, twin
from hanse.policy.kernel.twin import BEST_FIT, CHEAPEST, COUNT_MAX, FIRST, SPREAD, WANTED_MAX

WHY_NOT_NATIVE: Final = native.WHY_NOT
BACKEND: Final = "numpy" if WHY_NOT_NATIVE else "native"

pick: Final = twin.pick if WHY_NOT_NATIVE else native.pick
settle: Final = twin.settle if WHY_NOT_NATIVE else native.settle
fit: Final = twin.fit if WHY_NOT_NATIVE else native.fit
match: Final = twin.match if WHY_NOT_NATIVE else native.match

__all__ = ["BACKEND", "BEST_FIT", "CHEAPEST", "COUNT_MAX", "FIRST", "SPREAD", "WANTED_MAX", "WHY_NOT_NATIVE",
           "fit", "match", "pick", "settle"]  # fmt: skip
