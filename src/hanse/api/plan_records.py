"""Answer of ``POST /v1/plan``: when and where a job would start, and the fate of all of its tasks."""

import msgspec


class CandidateAnswer(msgspec.Struct, frozen=True):
    """A cluster as a candidate for a planned job."""

    cluster: str
    slots: int = 0
    """Tasks of the first group that have room there now."""
    score: int = 0
    """Number of draws out of a thousand in which the first task starts there."""
    reason: str = ""
    chosen: bool = False


class StartAnswer(msgspec.Struct, frozen=True):
    """Delay until the first task starts, in microseconds; None: unknown."""

    p10: int | None = None
    p50: int | None = None
    p90: int | None = None


class GroupOutlookAnswer(msgspec.Struct, frozen=True):
    """Fate of the tasks of one group of a planned job, if it were submitted now."""

    group: str
    tasks: int = 0
    clusters: dict[str, int] = {}
    """Tasks that would start now, by cluster."""
    waiting: int = 0
    blocked: int = 0
    """Tasks that would wait for other jobs or groups first."""


class OutlookAnswer(msgspec.Struct, frozen=True):
    """Fate of all tasks of a planned job, if it were submitted now."""

    starting: int = 0
    waiting: int = 0
    blocked: int = 0
    groups: tuple[GroupOutlookAnswer, ...] = ()
    """The first groups, at most 20."""
    sentences: tuple[str, ...] = ()
    """The same in words, with the reasons why tasks would wait and what would let them start."""


class PlanAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/plan``: ``live.readmodel.start_estimate.Plan`` without what needs NumPy."""

    starts_now: bool
    candidates: tuple[CandidateAnswer, ...] = ()
    start: StartAnswer = StartAnswer()
    unknown: str = ""
    """Reason why some of ``start`` is unknown, as a sentence."""
    caveats: tuple[str, ...] = ()
    outlook: OutlookAnswer = OutlookAnswer()
