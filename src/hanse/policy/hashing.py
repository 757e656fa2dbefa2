"""Deterministic 64-bit mixing: pseudo-random spread without a random number generator.

A machine that must not always begin at node 0 (or all brokers would collide there) mixes its own seed with a
counter. Equal inputs give equal outputs on every machine, in every process and under any PYTHONHASHSEED. This
is not cryptography: the seed determines the outputs.
"""


def hash_numbers(seed: int, *values: int) -> int:
    """Return an unsigned 64-bit number that depends on all bits of the seed and values, and on their order.

    Inputs are taken modulo 2**64 (negative ones too); pass a handful of values, as the word grows with each.
    Before each value the word is multiplied by 2**64 over the golden ratio, whose small multiples lie far
    apart, so small seeds and counters do not collide. Then, as in splitmix64, two multiplications by its
    constants spread every difference over the whole word; folding the upper half of the product down takes
    fewer steps of Python than splitmix64's shifts. The constants stand in the code because a name costs time.
    """
    word = seed ^ 0x6A09E667F3BCC909  # else the hash of (0, 0) and of (0, 0, 0) would both be 0
    for value in values:
        word = word * 0x9E3779B97F4A7C15 ^ value
    word = (word & 0xFFFFFFFFFFFFFFFF) * 0xBF58476D1CE4E5B9
    word = ((word ^ word >> 64) & 0xFFFFFFFFFFFFFFFF) * 0x94D049BB133111EB
    return (word ^ word >> 64) & 0xFFFFFFFFFFFFFFFF


def pick_start(seed: int, counter: int, n: int) -> int:
    """Return the start of the ``counter``-th circular scan over ``n`` places: in [0, n), evenly spread."""
    assert n > 0, "there is no place to begin at"
    return hash_numbers(seed, counter) * n >> 64
