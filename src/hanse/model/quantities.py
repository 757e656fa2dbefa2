"""Quantities as people write them, converted to exact whole numbers of the machines' small units.

No float takes part: ``0.1`` CPUs is exactly 100 milli-CPUs. A float from a YAML or JSON reader is taken by
its shortest printed form, which is what its writer saw.

* CPUs, in milli-CPUs: ``2``, ``0.5`` or ``"500m"``; nothing finer than a thousandth of a core.
* Memory, in bytes: ``4096``, ``"512MB"`` (1000s), ``"4GiB"`` or ``"4Gi"`` (1024s); lower case is allowed.
* Time, in microseconds: seconds as a number, or ``"90s"``, ``"1h30m"``, ``"250ms"``, ``"2d"``, ``"1w"``.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.job import DEADLINE_MAX
from hanse.model.problem import Problem, describe_value
from hanse.model.resources import CPU_MILLI_MAX, MEMORY_BYTES_MAX

_CHARACTERS_MAX: Final = 64
"""Characters of a plausible quantity; longer texts are refused before anything is computed."""
_MAGNITUDE_MAX: Final = 10**30
"""Numbers beyond this are refused before they are printed."""
_NUMBER: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?", re.ASCII)
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", re.ASCII)

_BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1_000 ** (power + 1) for power, letter in enumerate("kmgtp")},
    **{f"{letter}i": 1_024 ** (power + 1) for power, letter in enumerate("kmgtp")},
    **{f"{letter}ib": 1_024 ** (power + 1) for power, letter in enumerate("kmgtp")},
}
_TIME_UNITS: Final = {
    "us": 1,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "min": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 7 * 86_400 * SECOND,
}
_CPU_FORM: Final = 'CPUs are a number such as 2, 0.5 or "500m"'
_BYTE_FORM: Final = 'memory is a number of bytes or a text such as "512MB" or "4GiB"'
_TIME_FORM: Final = 'a time is a number of seconds or a text such as "90s", "1h30m" or "250ms"'
_WHOLE_FORM: Final = "this is a whole number"

Parse = Callable[[object, str], int | Problem]
"""Type of the parsers here: value and path of its field; quantity or problem."""


def parse_cpus(value: object, field: str = "cpus") -> int | Problem:
    """Parse milli-CPUs."""
    amount = _parse_amount(value, field, _CPU_FORM)
    if isinstance(amount, Problem):
        return amount
    number, unit = amount
    if unit not in ("", "m"):
        return Problem(field, f"{_CPU_FORM}; the unit '{unit}' is unknown")
    milli = _scale(number, 1_000 if unit == "" else 1)
    if milli is None:
        return Problem(
            field, f"nothing finer than a thousandth of a CPU can be asked for; {describe_value(value)} is"
        )
    if milli > CPU_MILLI_MAX:
        return Problem(
            field, f"at most {CPU_MILLI_MAX // 1_000} CPUs can be asked for, not {describe_value(value)}"
        )
    return milli


def parse_bytes(value: object, field: str = "memory") -> int | Problem:
    """Parse bytes; a part of a byte left over from a larger unit (``"1.1GiB"``) counts as a whole one."""
    amount = _parse_amount(value, field, _BYTE_FORM)
    if isinstance(amount, Problem):
        return amount
    number, unit = amount
    size = _BYTE_UNITS.get(unit.lower())
    if size is None:
        hint = f"'{unit}' could mean two things: write {unit.upper()}B (1000s) or {unit.upper()}iB (1024s)"
        return Problem(field, hint if unit.lower() in tuple("kmgtp") else f"{_BYTE_FORM}; not '{unit}'")
    total = _scale(number, size, up=size > 1)
    if total is None:
        return Problem(field, f"memory is counted in whole bytes; {describe_value(value)} is not")
    if total > MEMORY_BYTES_MAX:
        return Problem(
            field, f"at most {MEMORY_BYTES_MAX} bytes (1 PiB) can be asked for, not {describe_value(value)}"
        )
    return total


def parse_duration(value: object, field: str = "duration") -> int | Problem:
    """Parse microseconds, up to ten years."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) is None:
        return _parse_duration_text(value.replace(" ", ""), field)
    amount = _parse_amount(value, field, _TIME_FORM)
    if isinstance(amount, Problem):
        return amount
    return _sum_times([(amount[0], "s")], value, field)


def parse_whole(value: object, field: str = "count") -> int | Problem:
    """Parse a whole number from 0, written as a number or as its digits."""
    amount = _parse_amount(value, field, _WHOLE_FORM)
    if isinstance(amount, Problem):
        return amount
    whole = _scale(amount[0], 1) if not amount[1] else None
    return Problem(field, f"{_WHOLE_FORM}, not {describe_value(value)}") if whole is None else whole


def parse_thousandths(value: object, field: str = "speed") -> int | Problem:
    """Parse a plain factor such as 1.8, as thousandths."""
    amount = _parse_amount(value, field, "this is a number such as 1.8")
    if isinstance(amount, Problem):
        return amount
    milli = _scale(amount[0], 1_000) if not amount[1] else None
    if milli is None:
        return Problem(
            field, f"this is a number with at most three decimals such as 1.8, not {describe_value(value)}"
        )
    return milli


def parse_range(value: object, field: str, parse: Parse) -> tuple[int, int] | Problem:
    """Parse ``"2..16"`` as (2, 16), and a single quantity as an equal pair; both ends with ``parse``."""
    if not isinstance(value, str) or ".." not in value:
        single = parse(value, field)
        return single if isinstance(single, Problem) else (single, single)
    low_text, _, high_text = value.partition("..")
    low, high = parse(low_text.strip(), field), parse(high_text.strip(), field)
    if isinstance(low, Problem):
        return low
    if isinstance(high, Problem):
        return high
    if low > high:
        return Problem(
            field, f"a range goes from the least to the most, so {describe_value(value)} is upside down"
        )
    return low, high


def _parse_amount(value: object, field: str, form: str) -> tuple[str, str] | Problem:
    """Split a value into a number in plain decimal digits, and its unit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return Problem(field, f"{form}, not {describe_value(value)}")
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value.strip()) if len(value) <= _CHARACTERS_MAX else None
        return (
            (found.group(1), found.group(2))
            if found
            else Problem(field, f"{form}, not {describe_value(value)}")
        )
    if value < 0:
        return Problem(field, f"{form} and cannot be negative; {describe_value(value)} is")
    if not value <= _MAGNITUDE_MAX:  # negated in order to catch "not a number", too
        return Problem(field, f"{form}; {describe_value(value)} is out of all range")
    # repr gives the shortest decimal that means this float; Decimal turns it into plain digits exactly.
    return (str(value) if isinstance(value, int) else f"{Decimal(repr(value)):f}"), ""


def _scale(number: str, unit: int, *, up: bool = False) -> int | None:
    """Return ``number * unit`` exactly; None if that is not whole, unless it may be rounded ``up``."""
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    product, rest = divmod(int(whole + fraction) * unit, scale)
    if rest and not up:
        return None
    return product + 1 if rest else product


def _parse_duration_text(text: str, field: str) -> int | Problem:
    """Parse a text such as ``1h30m``."""
    parts: list[tuple[str, str]] = []
    position = 0
    while position < len(text) <= _CHARACTERS_MAX:
        found = _AMOUNT.match(text, position)
        if found is None or found.group(2) not in _TIME_UNITS:
            return Problem(
                field, f"{_TIME_FORM} (units: {', '.join(_TIME_UNITS)}), not {describe_value(text)}"
            )
        parts.append((found.group(1), found.group(2)))
        position = found.end()
    if not parts:
        return Problem(field, f"{_TIME_FORM}, not {describe_value(text)}")
    return _sum_times(parts, text, field)


def _sum_times(parts: list[tuple[str, str]], value: object, field: str) -> int | Problem:
    total = 0
    for number, unit in parts:
        micro = _scale(number, _TIME_UNITS[unit])
        if micro is None:
            return Problem(
                field, f"nothing finer than a microsecond can be told apart; {describe_value(value)} is"
            )
        total += micro
    if total > DEADLINE_MAX:
        return Problem(field, f"a time is at most ten years, not {describe_value(value)}")
    return total
