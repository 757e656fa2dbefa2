"""Arithmetic that C and Python do alike to the last bit: logarithm, exponential, small symmetric systems.

The twin of ``policy/kernels/exact_math.h``. Only + - * / and the square root are used, which IEEE 754 defines
to the bit, in one order; the libraries' own ``log`` and ``exp`` differ between machines.
"""

from math import frexp, ldexp, sqrt
from typing import Final

LN2: Final = 0.6931471805599453
SQRT_HALF: Final = 0.7071067811865476
EXPONENT_MAX: Final = 200.0
"""Largest argument of ``exact_exp``, either way: what is beyond is cut."""
PIVOT_MIN: Final = 1e-12
"""Least pivot, relative to the diagonal, of a system: below it the direction is taken as unknown."""


def exact_log(number: float) -> float:
    """Return the natural logarithm of a positive normal number, to about 1e-15."""
    assert number > 0.0, f"logarithm of {number}"
    part, exponent = frexp(number)
    if part < SQRT_HALF:
        part, exponent = part + part, exponent - 1
    s = (part - 1.0) / (part + 1.0)
    z = s * s
    total = 1.0 / 17.0
    for odd in range(15, 0, -2):
        total = total * z + 1.0 / odd
    return exponent * LN2 + 2.0 * s * total


def exact_exp(number: float) -> float:
    """Return e to the power of a number, to about 1e-14."""
    number = min(max(number, -EXPONENT_MAX), EXPONENT_MAX)
    scaled = number / LN2
    whole = int(scaled - 0.5 if scaled < 0.0 else scaled + 0.5)
    rest = number - whole * LN2
    total = 1.0
    for order in range(14, 0, -1):
        total = total * rest / order + 1.0
    return ldexp(total, whole)


def packed(i: int, j: int) -> int:
    """Return the place of row ``i``, column ``j <= i`` in a packed lower triangle."""
    return i * (i + 1) // 2 + j


def solve_packed(matrix: list[float], right: list[float]) -> list[float]:
    """Return the solution of a positive definite system, given as a packed lower triangle."""
    size = len(right)
    matrix, right = list(matrix), list(right)
    for i in range(size):
        at = packed(i, 0)
        whole = matrix[at + i]
        for j in range(i + 1):
            other = packed(j, 0)
            total = matrix[at + j]
            for k in range(j):
                total = total - matrix[at + k] * matrix[other + k]
            if j < i:
                matrix[at + j] = total / matrix[other + j]
            else:
                matrix[at + i] = sqrt(total) if total > PIVOT_MIN * whole else 1e100
    for i in range(size):
        total = right[i]
        for k in range(i):
            total = total - matrix[packed(i, k)] * right[k]
        right[i] = total / matrix[packed(i, i)]
    for i in range(size - 1, -1, -1):
        total = right[i]
        for k in range(i + 1, size):
            total = total - matrix[packed(k, i)] * right[k]
        right[i] = total / matrix[packed(i, i)]
    return right
