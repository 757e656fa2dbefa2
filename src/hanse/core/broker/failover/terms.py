"""Terms of a shard: numbers that say which word of an owner is the later one.

An owner counts its terms up by one, with every standby that it names. Whoever takes a shard over begins at
the next multiple of ``1 << TERMS_BITS``, so a term also says how often the shard has changed hands.
"""

from typing import Final

TERMS_BITS: Final = 20


def takeover_count(term: int) -> int:
    """After how many takeovers a term was."""
    return term >> TERMS_BITS
