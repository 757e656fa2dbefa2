"""Difference of two dumped states, for messages that show where they differ."""

from typing import Any

import msgspec


def first_difference(left: bytes, right: bytes) -> str:
    """Return the path to the first difference between two MessagePack texts, and both values there."""
    return _difference(
        "", msgspec.msgpack.decode(left, strict=False), msgspec.msgpack.decode(right, strict=False)
    )


def _difference(path: str, left: Any, right: Any) -> str:
    if isinstance(left, dict) and isinstance(right, dict):
        if list(left) != list(right):
            return f"{path or '.'} has keys {_short(list(left))} and {_short(list(right))}"
        pairs = [(f"{path}.{key}", left[key], right[key]) for key in left]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = [(f"{path}[{index}]", *both) for index, both in enumerate(zip(left, right, strict=True))]
    else:
        return "" if left == right else f"{path or '.'} is {_short(left)} and {_short(right)}"
    return next((found for found in (_difference(*pair) for pair in pairs) if found), "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
