"""Terms of a shard: numbers that order the registrations of its owners.

An owner raises its term by one with every standby that it names. A new owner starts at the next multiple of
``1 << TERMS_BITS``, so a term also tells how often the shard has changed hands.
"""

from typing import Final

TERMS_BITS: Final = 20


def reclaimed_term(term: int) -> int:
    """Return the first term of an owner that takes back a shard after an abandoned takeover: above the terms
    that the other would have used, so that copies which it may have made are outdated."""
    return ((term >> TERMS_BITS) + 2) << TERMS_BITS


def takeover_count(term: int) -> int:
    """Return the number of takeovers before a term."""
    return term >> TERMS_BITS
