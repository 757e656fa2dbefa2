"""Prometheus' text format (version 0.0.4), and a histogram.

Counters and gauges need no class: a caller keeps a plain dictionary, because that costs a quarter of a
library's counter for every message (ADR 0018). This module turns such dictionaries into text at a scrape.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LABEL_VALUES_MAX: Final = 200
"""Values of a label that people choose (tenants); further ones are counted as ``OTHER``."""
OTHER: Final = "(other)"

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds in seconds for times that a person waits for an answer."""
LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
"""Bounds in seconds for times in a queue."""

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Histogram:
    """The number of durations below each bound. Only one thread may call ``observe``."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add a value in seconds, ``times`` times. A clock that was set back cannot make it negative."""
        value = max(value, 0.0)
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self._counts)

    def samples(self, labels: Labels = ()) -> list[tuple[str, Labels, float]]:
        """Return suffix, labels and value of each line."""
        lines: list[tuple[str, Labels, float]] = []
        total = 0
        for bound, count in zip((*self._bounds, math.inf), list(self._counts), strict=True):
            total += count
            lines.append(("_bucket", (*labels, ("le", _number(bound))), total))
        return [*lines, ("_sum", labels, self._sum), ("_count", labels, total)]


class MetricFamily(msgspec.Struct, frozen=True):
    """One metric: its name, its meaning, and its lines."""

    name: str
    kind: str
    help: str
    lines: tuple[tuple[str, Labels, float], ...]


def counter(name: str, about: str, samples: Iterable[Sample]) -> MetricFamily:
    """Return a metric that only rises, until its process restarts."""
    assert name.endswith("_total"), f"the name of the counter {name} does not end with _total"
    return MetricFamily(name, "counter", about, tuple(("", labels, value) for labels, value in samples))


def gauge(name: str, about: str, samples: Iterable[Sample]) -> MetricFamily:
    """Return a metric that rises and falls."""
    return MetricFamily(name, "gauge", about, tuple(("", labels, value) for labels, value in samples))


def histogram(name: str, about: str, parts: Iterable[tuple[Labels, Histogram]]) -> MetricFamily:
    """Return histograms of one name with different labels."""
    lines = tuple(line for labels, part in parts for line in part.samples(labels))
    return MetricFamily(name, "histogram", about, lines)


def unlabelled_sample(value: float) -> list[Sample]:
    """Return the only sample of a metric without labels."""
    return [((), value)]


def by_label(label: str, counts: Mapping[str, float]) -> list[Sample]:
    """Return samples with one label, in the order of its values."""
    return [(((label, key),), counts[key]) for key in sorted(counts)]


def by_two_labels(labels: tuple[str, str], counts: Mapping[tuple[str, str], float]) -> list[Sample]:
    """Return samples with two labels."""
    return [(tuple(zip(labels, key, strict=True)), counts[key]) for key in sorted(counts)]


def resource_samples(cluster: str, dimensions: tuple[str, ...], vector: tuple[int, ...]) -> list[Sample]:
    """Return amounts of resources in base units: whole cores instead of thousandths."""
    samples: list[Sample] = []
    for name, amount in zip(dimensions, vector, strict=False):
        labels: Labels = (("cluster", cluster), ("resource", name))
        samples.append((labels, amount / 1_000 if name == "cpu" else amount))
    return samples


def tally(counts: dict[str, int], values: list[str]) -> None:
    """Count values, most of which are equal: a few passes in C instead of a step of Python for each."""
    while values:
        first = values[0]
        counts[first] += (times := values.count(first))
        if times == len(values):
            return
        values = [value for value in values if value != first]


def render(families: Iterable[MetricFamily]) -> bytes:
    """Return the whole answer to a scrape. A metric without samples is listed too, so that its name can be
    found."""
    text: list[str] = []
    for family in families:
        text.append(f"# HELP {family.name} {family.help.translate(_HELP_ESCAPED)}")
        text.append(f"# TYPE {family.name} {family.kind}")
        text += [
            f"{family.name}{suffix}{_labels(labels)} {_number(value)}"
            for suffix, labels, value in family.lines
        ]
    return ("\n".join(text) + "\n").encode("utf-8", "replace")


class LabelValues:
    """Bounds a label that people choose to ``LABEL_VALUES_MAX`` values while the process lives."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def value_of(self, value: str) -> str:
        """Return the value to write: itself, or ``OTHER`` when there are too many."""
        known = self._known.get(value)
        if known is None:
            if len(self._known) >= LABEL_VALUES_MAX:
                return OTHER
            known = self._known[value] = value
        return known


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels) + "}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
