"""Options of readers for traces that can be read in more than one way, each with a stated default."""

from enum import StrEnum
from typing import Final

import msgspec

GIB: Final = 1 << 30


class ProcessorRule(StrEnum):
    """Rule for the size of an SWF job. If the chosen field is absent, the other one counts."""

    REQUESTED = "requested"
    ALLOCATED = "allocated"


class EstimateRule(StrEnum):
    """Rule for the estimate of an SWF job."""

    REQUESTED = "requested"
    """Field 9 unchanged; 0 if absent."""
    AT_LEAST_REAL = "at-least-real"
    """Larger of requested and real time: needed by backfilling that never kills."""


class CancelledRule(StrEnum):
    """Rule for SWF jobs with status 5 (cancelled)."""

    RAN = "ran"
    """Keep those that ran before they were cancelled."""
    KEEP = "keep"
    """Keep all that have processors; one that never ran has run time 0."""
    SKIP = "skip"


class TimeUnit(StrEnum):
    """Unit of GAIA's times, which its files do not state."""

    AUTO = "auto"
    """Seconds if the first rows have integers only, else hours."""
    SECONDS = "seconds"
    HOURS = "hours"


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for reading traces that can be read in several ways."""

    truncate_seconds: bool = False
    """``.tr``: truncate durations to whole seconds, as the authors of the simulators of that family do."""
    processors: ProcessorRule = ProcessorRule.REQUESTED
    estimates: EstimateRule = EstimateRule.REQUESTED
    kill_at_estimate: bool = False
    """SWF: limit a job's run time to the requested time, if there is one."""
    cancelled: CancelledRule = CancelledRule.RAN
    skip_zero_runtime: bool = False
    """SWF: leave out jobs whose run time is 0."""
    time_unit: TimeUnit = TimeUnit.AUTO
    whole_cpu: int = 64_000
    """Google: milli-CPU of the largest machine; requests are shares of it."""
    whole_memory: int = 256 * GIB
    """Google: bytes of the largest machine; requests are shares of it."""


DEFAULT_READ_OPTIONS: Final = ReadOptions()
