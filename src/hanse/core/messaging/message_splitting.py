"""Splitting of lists into messages of a size that every shell can carry, by the bytes of their payloads.

A task's payload travels with it, up to a mebibyte each, and a shell may refuse an envelope with many of them.
Only payloads are counted: all other parts of a message are small and bounded by other rules.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = 4 << 20
"""Bytes of payload in one message, unless a single item has more."""
ENTRIES_MAX: Final = 8_192
"""Tasks in one message that carries a few numbers per task."""
ENTRY_BYTES: Final = 32
"""Maximum bytes of one such entry."""


def split_by_bytes(items: Sequence[T], weight: Callable[[T], int], most: int) -> Iterator[Sequence[T]]:
    """Yield consecutive parts of at most ``most`` items and ``MESSAGE_BYTES_MAX``, or of one larger item."""
    first = size = 0
    for at, item in enumerate(items):
        extra = weight(item)
        if at > first and (at - first >= most or size + extra > MESSAGE_BYTES_MAX):
            yield items[first:at]
            first, size = at, 0
        size += extra
    if first < len(items):
        yield items[first:]


def split_by_count(items: Sequence[T], most: int = ENTRIES_MAX) -> Iterator[Sequence[T]]:
    """Yield consecutive parts of at most ``most`` items; one empty part for an empty list."""
    for at in range(0, len(items) or 1, most):
        yield items[at : at + most]
