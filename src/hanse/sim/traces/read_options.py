"""The choices a reader makes where a trace can be read in more than one way. Each is a rule with a stated
default."""

from enum import StrEnum
from typing import Final

import msgspec

GIB: Final = 1 << 30


class Processors(StrEnum):
    """Which size an SWF job has. When the chosen field is absent, the other one counts."""

    REQUESTED = "requested"
    ALLOCATED = "allocated"


class Estimates(StrEnum):
    """What an SWF job's estimate is."""

    REQUESTED = "requested"
    """Field 9 as it stands; 0 when absent."""
    AT_LEAST_REAL = "at-least-real"
    """The larger of requested and real time: what backfilling needs if it never kills."""


class Cancelled(StrEnum):
    """What becomes of SWF jobs with status 5 (cancelled)."""

    RAN = "ran"
    """Those that ran before they were cancelled stay."""
    KEEP = "keep"
    """All stay that have processors; one that never ran has run time 0."""
    SKIP = "skip"


class TimeUnit(StrEnum):
    """The unit of GAIA's times, which its files do not state."""

    AUTO = "auto"
    """Seconds when the first rows have whole numbers only, else hours."""
    SECONDS = "seconds"
    HOURS = "hours"


class ReadRules(msgspec.Struct, frozen=True, kw_only=True):
    """How to read what can be read in several ways."""

    truncate_seconds: bool = False
    """``.tr``: cut durations down to whole seconds, as the authors of the simulators of that family do."""
    processors: Processors = Processors.REQUESTED
    estimates: Estimates = Estimates.REQUESTED
    kill_at_estimate: bool = False
    """SWF: a job runs at most as long as it requested (if it requested anything)."""
    cancelled: Cancelled = Cancelled.RAN
    skip_zero_runtime: bool = False
    """SWF: leave out jobs whose run time is 0."""
    time_unit: TimeUnit = TimeUnit.AUTO
    whole_cpu: int = 64_000
    """Google: milli-CPU of the largest machine, of which requests are shares."""
    whole_memory: int = 256 * GIB
    """Google: bytes of the largest machine, of which requests are shares."""


DEFAULT_RULES: Final = ReadRules()
