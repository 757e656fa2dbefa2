"""Messages of a size that every shell can carry: lists are cut by the bytes that they drag along.

What a task runs travels with it, up to a mebibyte each; a shell may refuse envelopes of many. Counting the
payloads alone is enough: everything else in a message is bounded by other rules, and small.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = 4 << 20
"""Payloads in one message, unless a single item has more."""
ENTRIES_MAX: Final = 8_192
"""Tasks that one message tells of, where it tells a few numbers of each."""
ENTRY_BYTES: Final = 32
"""What one of them takes at most."""


def split_by_bytes(items: Sequence[T], weight: Callable[[T], int], most: int) -> Iterator[Sequence[T]]:
    """Consecutive parts of at most ``most`` items and, if they have several, of ``MESSAGE_BYTES_MAX``."""
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
    """Consecutive parts of at most ``most`` items; one empty part of nothing."""
    for at in range(0, len(items) or 1, most):
        yield items[at : at + most]
