"""Reader of plain decoded data (mappings, lists, texts, numbers), field by field, without exceptions.

Each converter returns the value of a field, given its raw value and path, or a ``Problem``. Nothing here
trusts its input: it may be of any type and, until ``size_problem`` has checked it, of any size or shape.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from hanse.model.job import SPEC_BYTES_MAX
from hanse.model.job_validation import suggest_spelling
from hanse.model.problem import Problem, ProblemList, describe_value, printable_name

ITEMS_MAX: Final = 200_000
"""Values in a job's data, counted through all mappings and lists (an aliased one each time it appears)."""
NESTING_MAX: Final = 16
"""Levels of nested mappings and lists; a valid job has five."""
_TRACE: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

_TEXT: Final = (str, bytes)
_NESTED: Final = (dict, list, tuple, Mapping)
"""Nested types, the usual first: a check for ``Mapping`` is slower than all others."""

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Convert = Callable[[object, str], T | Problem]


def size_problem(data: object) -> Problem | None:
    """Return a problem if the data is too large or too deep; the walk also ends for data that contains
    itself."""
    items = characters = 0
    waiting: list[tuple[int, object]] = [(1, data)]
    while waiting:
        depth, value = waiting.pop()
        items += 1
        if isinstance(value, _TEXT):
            characters += len(value)
        elif isinstance(value, _NESTED):
            if depth > NESTING_MAX:
                return Problem("", f"lists and mappings nest at most {NESTING_MAX} levels deep in a job")
            if items + len(waiting) + len(value) <= ITEMS_MAX:
                waiting += [(depth + 1, item) for item in value]
                if isinstance(value, Mapping):
                    waiting += [(depth + 1, item) for item in value.values()]
            else:
                items = ITEMS_MAX + 1
        if items > ITEMS_MAX:
            return Problem("", f"a job has at most {ITEMS_MAX} values altogether; this is larger")
        if characters > SPEC_BYTES_MAX:
            return Problem("", f"a job may take at most {SPEC_BYTES_MAX} bytes altogether; this is larger")
    return None


class FieldReader:
    """Fields of one mapping, and the list of problems found in them."""

    def __init__(self, values: Mapping[str, object], path: str, problems: ProblemList) -> None:
        self.written = values
        """Raw values by name; null counts as not written."""
        self._path = path
        self.problems = problems

    @classmethod
    def from_value(
        cls, value: object, path: str, known: Sequence[str], problems: ProblemList
    ) -> "FieldReader | None":
        """Return the fields of ``value``, unknown ones noted as problems; None if it has no fields at all."""
        if not isinstance(value, Mapping):
            problems.add(
                path, f"this is a mapping with fields such as {known[0]}, not {describe_value(value)}"
            )
            return None
        values: dict[str, object] = {}
        prefix = f"{path}." if path else ""
        for key, item in value.items():
            if isinstance(key, str) and key in known:
                values[key] = item
            elif not isinstance(key, str):
                problems.add(path, f"a field's name is a word, not {describe_value(key)}")
            elif not problems.is_full:
                hint = suggest_spelling(key, known) or f"; known are {', '.join(known)}"
                problems.add(
                    f"{prefix}{printable_name(key)}", f"there is no field {describe_value(key)} here{hint}"
                )
            else:
                problems.add("", "")  # only counted
        return cls(values, path, problems)

    def has_field(self, key: str) -> bool:
        """True if the field is written, and not null."""
        return self.written.get(key) is not None

    def raw_value(self, key: str) -> object:
        """Return the field's value without conversion."""
        return self.written.get(key)

    def path_of(self, key: str) -> str:
        """Return the field's path as its writer knows it."""
        return f"{self._path}.{key}" if self._path else key

    def read(self, key: str, convert: Convert[T], default: T) -> T:
        """Convert a field; return the default if it is not written, or if it is invalid, which is noted."""
        value = self.written.get(key)
        if value is None:
            return default
        result = convert(value, self.path_of(key))
        if isinstance(result, Problem):
            self.problems.add(result.field, result.rule)
            return default
        return result


def read_text(value: object, field: str) -> str | Problem:
    """Read a text. A number gets a hint to add quotes, because ``007`` and ``1.10`` lose digits as
    numbers."""
    if isinstance(value, str):
        return value
    hint = " (put it in quotes)" if isinstance(value, bool | int | float) else ""
    return Problem(field, f"this is a text, not {describe_value(value)}{hint}")


def read_texts(value: object, field: str) -> tuple[str, ...] | Problem:
    """Read a list of texts."""
    return read_list(value, field, read_text)


def read_trace(value: object, field: str) -> str | Problem:
    """Read a W3C ``traceparent`` of version 00, exactly as the standard writes it."""
    if isinstance(value, str) and _TRACE.fullmatch(value):
        return value
    return Problem(
        field,
        "this is a W3C traceparent, 00-TRACE-SPAN-FLAGS with 32, 16 and 2 lower-case hexadecimal digits and "
        f"neither id all zeros, not {describe_value(value)}",
    )


def read_list(value: object, field: str, convert: Convert[T]) -> tuple[T, ...] | Problem:
    """Read a list with ``convert`` for each item; the first invalid item is reported."""
    if not isinstance(value, list | tuple):
        return Problem(field, f"this is a list, such as [a, b], not {describe_value(value)}")
    results: list[T] = []
    for index, item in enumerate(value):
        result = convert(item, f"{field}[{index}]")
        if isinstance(result, Problem):
            return result
        results.append(result)
    return tuple(results)


def read_flag(value: object, field: str) -> bool | Problem:
    """Read true or false; similar values are refused."""
    return (
        value
        if isinstance(value, bool)
        else Problem(field, f"this is true or false, not {describe_value(value)}")
    )


def read_integer(value: object, field: str) -> int | Problem:
    """Read a whole number, also a negative one; ``job_validation`` checks its bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        return Problem(field, f"this is a whole number, not {describe_value(value)}")
    return value


def choice_reader(kind: type[E]) -> Convert[E]:
    """Return a converter to one of the words of an enumeration."""
    words = [str(member) for member in kind]

    def convert(value: object, field: str) -> E | Problem:
        if isinstance(value, str) and value in words:
            return kind(value)
        return Problem(field, f"this is one of {', '.join(words)}, not {describe_value(value)}")

    return convert
