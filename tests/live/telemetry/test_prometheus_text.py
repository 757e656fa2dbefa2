"""The text of metrics: Prometheus reads back what was written, and labels are bounded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hanse.live.telemetry.prometheus_text import (
    LABEL_VALUES_MAX,
    OTHER,
    Histogram,
    LabelValues,
    counter,
    gauge,
    histogram,
    render,
    unlabelled_sample,
)


@given(st.text(), st.floats(allow_nan=False), st.text())
def test_whatever_a_label_holds_prometheus_reads_it_back(value: str, number: float, about: str) -> None:
    text = render([gauge("hanse_x", about, [((("tenant", value),), number)])]).decode()
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.labels == {"tenant": value.encode("utf-8", "replace").decode()}
    assert sample.value == number


def test_a_histogram_counts_what_lies_at_or_below_its_bounds() -> None:
    found = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0, -3.0):
        found.observe(value)
    text = render([histogram("hanse_y_seconds", "Time.", [((("a", "b"),), found)])]).decode()
    (family,) = text_string_to_metric_families(text)
    assert {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels} == {
        "0.1": 3,
        "1.0": 5,
        "+Inf": 6,
    }
    sums = {sample.name: sample.value for sample in family.samples if "le" not in sample.labels}
    assert sums["hanse_y_seconds_count"] == found.count == 6
    assert math.isclose(sums["hanse_y_seconds_sum"], 8.65)


def test_a_metric_without_samples_is_named() -> None:
    assert render([counter("hanse_z_total", "Nothing yet.", [])]) == (
        b"# HELP hanse_z_total Nothing yet.\n# TYPE hanse_z_total counter\n"
    )
    with pytest.raises(AssertionError):
        counter("hanse_z", "A counter by the wrong name.", unlabelled_sample(1))


def test_people_cannot_make_labels_without_end() -> None:
    values = LabelValues()
    seen = [values.value_of(f"tenant{number}") for number in range(LABEL_VALUES_MAX + 5)]
    assert seen[-5:] == [OTHER] * 5
    assert values.value_of("tenant3") == "tenant3"
