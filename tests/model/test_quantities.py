"""Amounts as people write them are read exactly."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.ids import SECOND
from hanse.model.job_parser import (
    Problem,
    parse_bytes,
    parse_cpus,
    parse_duration,
)
from hanse.model.resources import CPU_MILLI_MAX


@pytest.mark.parametrize(
    ("written", "milli"),
    [
        (2, 2_000),
        (0.1, 100),
        ("0.1", 100),
        ("500m", 500),
        ("2.50", 2_500),
        (0, 0),
        (1e6, CPU_MILLI_MAX),
        (1e-3, 1),
    ],
)
def test_cpus(written: object, milli: int) -> None:
    assert parse_cpus(written) == milli


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (4_096, 4_096),
        ("512MB", 512_000_000),
        ("4GiB", 4 << 30),
        ("4gi", 4 << 30),
        ("1.5 KiB", 1_536),
        ("1.1KiB", 1_127),
        ("1PiB", 1 << 50),
        ("10B", 10),
        (1e3, 1_000),
    ],
)
def test_bytes(written: object, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize(
    ("written", "micro"),
    [
        (90, 90 * SECOND),
        (0.5, SECOND // 2),
        ("90", 90 * SECOND),
        ("90s", 90 * SECOND),
        ("2h", 7_200 * SECOND),
        ("1h30m", 5_400 * SECOND),
        ("1h 30min", 5_400 * SECOND),
        ("250ms", SECOND // 4),
        ("1.5us", None),
        ("7us", 7),
        ("2d", 172_800 * SECOND),
        ("1w", 604_800 * SECOND),
        ("", None),
        ("h", None),
        ("5 fortnights", None),
        ("-5s", None),
        ("1s" * 100, None),
    ],
)
def test_durations(written: object, micro: int | None) -> None:
    result = parse_duration(written)
    assert isinstance(result, Problem) if micro is None else result == micro


@given(st.decimals(min_value=0, max_value=10**6, places=4) | st.decimals(min_value=0, max_value=10, places=2))
def test_cpus_are_exact(written: Decimal) -> None:
    exact = Fraction(written) * 1_000
    result = parse_cpus(f"{written:f}")
    assert isinstance(result, Problem) if exact.denominator != 1 else result == exact


@given(st.integers(0, CPU_MILLI_MAX))
def test_floats_mean_what_their_writer_saw(milli: int) -> None:
    assert parse_cpus(milli / 1_000) == milli


@given(
    st.decimals(min_value=0, max_value=1_000, places=3), st.sampled_from((("MB", 10**6), ("GiB", 1 << 30)))
)
def test_bytes_round_up_exactly(written: Decimal, unit: tuple[str, int]) -> None:
    exact = Fraction(written) * unit[1]
    result = parse_bytes(f"{written:f}{unit[0]}")
    assert result == -(-exact.numerator // exact.denominator)
