"""Means with confidence intervals over few repeats, by Student's t."""

import math
from collections.abc import Sequence
from typing import Final

_T_975: Final = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""The 97.5 % quantile for 1 to 30 degrees of freedom."""
_NORMAL_975: Final = 1.959964


def t_975(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t; beyond 30 degrees of freedom by its expansion about the
    normal (< 1e-4 off)."""
    assert freedom >= 1
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = _NORMAL_975
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def mean_with_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % confidence interval (0 for a single value: unknown).
    Equal values give exactly that value as the mean, and no interval."""
    count = len(values)
    if min(values) == max(values):
        return values[0], 0.0
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, t_975(count - 1) * math.sqrt(variance / count)
