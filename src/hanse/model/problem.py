"""Problems in what a person wrote: refusals as values that name the field and the rule."""

from typing import Final

import msgspec

PROBLEMS_MAX: Final = 20
"""Problems reported at once; the rest is only counted."""
_SHOWN_MAX: Final = 40
"""Characters of a wrong value that are repeated to its writer."""
_SHOWN_BITS_MAX: Final = 128
"""Bits of the longest printed number: printing digits takes quadratic time."""


class Problem(msgspec.Struct, frozen=True):
    """One thing to correct."""

    field: str
    """Path such as ``groups[1].ask.cpu``; empty for the whole."""
    rule: str
    """Sentence that says what is allowed and what was given."""


class ProblemList:
    """List of problems that keeps the first ``PROBLEMS_MAX`` and counts the others."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._first)

    @property
    def is_full(self) -> bool:
        """True if further problems are only counted, so that their words do not matter."""
        return len(self._first) >= PROBLEMS_MAX

    def add(self, field: str, rule: str) -> None:
        """Add a problem."""
        if self.is_full:
            self._more += 1
        else:
            self._first.append(Problem(field, rule))

    def to_list(self) -> tuple[Problem, ...]:
        """Return the first problems in the order found, and a last one that counts the rest."""
        if not self._more:
            return tuple(self._first)
        return (*self._first, Problem("", f"and {self._more} more"))


def describe_value(value: object) -> str:
    """Describe a wrong value in a few words, for the end of a sentence; safe for any kind and size."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value.bit_length() > _SHOWN_BITS_MAX:
            return f"a number of {value.bit_length()} bits"
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]!r}..."
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, dict) else f"a {type(value).__name__}"


def printable_name(name: str) -> str:
    """Return a name from an unknown writer in a form that fits in a path or a sentence."""
    short = name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}..."
    return short if short.isprintable() else repr(short)
