"""Streams of random numbers: one for each concern, so that one setting does not reshuffle the others."""

from enum import IntEnum

import numpy as np


class DrawStream(IntEnum):
    """Concern that draws numbers; the values are part of every result, so new ones go at the end."""

    TEMPLATES = 1
    HOME_LOAD = 2
    WINDOW = 3
    KIND = 4
    TEMPLATE = 5
    UNKNOWN_ROWS = 6
    SECONDS = 7
    FILLERS = 8
    REPLICAS = 9
    GANGS = 10
    DEADLINES = 11
    OUTAGES = 12


def generator_of(seed: int, stream: DrawStream, *further: int) -> np.random.Generator:
    """Return the generator of a concern; ``further``: stretch and cluster, for instance."""
    return np.random.Generator(np.random.PCG64([seed, int(stream), *further]))
