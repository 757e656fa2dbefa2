"""Quantities of the world file as text: rates, bytes, times and factors, read exactly and written shortly."""

from decimal import Decimal
from re import ASCII
from re import compile as compile_pattern
from typing import Final

from hanse.model.field_reader import Convert
from hanse.model.problem import Problem, describe_value

_RATE: Final = compile_pattern(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)/s", ASCII)
_CHARACTERS_MAX: Final = 64
RATE_MAX: Final = 10**15
"""Bytes per second: a thousand times the memory bandwidth of today's largest machines."""
_BIT_UNITS: Final = {f"{letter}{bit}": 1_000 ** (power + 1) for power, letter in enumerate("KMGT")
                     for bit in ("b", "bit")}  # fmt: skip
_BYTE_UNITS: Final = {
    "B": 1,
    **{f"{letter}B": 1_000 ** (power + 1) for power, letter in enumerate("KMGT")},
    **{f"{letter}iB": 1_024 ** (power + 1) for power, letter in enumerate("KMGT")},
}
_RATE_FORM: Final = 'a rate is a text such as "105GB/s" (bytes) or "10Gb/s" (bits)'
_WRITTEN: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))
_WRITTEN_BINARY: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES: Final = (("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1))


def parse_rate(value: object, field: str) -> int | Problem:
    """Parse bytes per second; a unit with a small ``b`` counts bits."""
    found = (
        _RATE.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _CHARACTERS_MAX else None
    )
    if found is None:
        if value == 0 and not isinstance(value, bool):
            return 0
        return Problem(field, f"{_RATE_FORM}, not {describe_value(value)}")
    number, unit = Decimal(found.group(1)), found.group(2)
    if unit in _BYTE_UNITS:
        rate = number * _BYTE_UNITS[unit]
    elif unit in _BIT_UNITS:
        rate = number * _BIT_UNITS[unit] / 8
    else:
        known = ", ".join([*_BYTE_UNITS, *_BIT_UNITS])
        return Problem(field, f"{_RATE_FORM}; the unit {unit!r} is unknown (there are {known})")
    if rate != int(rate):
        return Problem(field, f"rates are whole bytes per second; {describe_value(value)} is not")
    if rate > RATE_MAX:
        return Problem(
            field, f"a rate is at most {RATE_MAX:.0e} bytes per second, not {describe_value(value)}"
        )
    return int(rate)


def write_rate(rate: int) -> str:
    """Return the shortest text that is exactly this rate."""
    for unit, size in _WRITTEN:
        if rate and rate % size == 0:
            return f"{rate // size}{unit}/s"
    return f"{rate}B/s"


def write_link(rate: int) -> str:
    """Return the text of a link's rate, in bits where they are whole."""
    for unit, size in (("Gb", 10**9 // 8), ("Mb", 10**6 // 8)):
        if rate and rate % size == 0:
            return f"{rate // size}{unit}/s"
    return write_rate(rate)


def write_bytes(amount: int) -> str | int:
    """Return the shortest text that is exactly this number of bytes."""
    exact = [(amount // size, unit) for unit, size in (*_WRITTEN_BINARY, *_WRITTEN) if amount % size == 0]
    number, unit = min(exact, key=lambda found: found[0], default=(amount, ""))
    return f"{number}{unit}" if amount and unit else amount


def write_time(time: int) -> str:
    """Return microseconds as a text in the largest unit that is exact."""
    if time == 0:
        return "0s"
    unit, size = next((unit, size) for unit, size in _TIMES if time % size == 0)
    return f"{time // size}{unit}"


def factor_reader(least: float, most: float) -> Convert[float]:
    """Return a reader of numbers from ``least`` to ``most``."""

    def read(value: object, field: str) -> float | Problem:
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
            return float(value)
        return Problem(field, f"this is a number from {least:g} to {most:g}, not {describe_value(value)}")

    return read


def whole_reader(least: int, most: int) -> Convert[int]:
    """Return a reader of whole numbers from ``least`` to ``most``."""

    def read(value: object, field: str) -> int | Problem:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        rule = f"this is a whole number from {least:,} to {most:,}, not {describe_value(value)}"
        return Problem(field, rule)

    return read


def bounded(read: Convert[int], least: int, rule: str) -> Convert[int]:
    """Return a reader that refuses quantities below ``least`` with a rule."""

    def convert(value: object, field: str) -> int | Problem:
        found = read(value, field)
        if isinstance(found, Problem) or found >= least:
            return found
        return Problem(field, f"{rule}, not {describe_value(value)}")

    return convert
