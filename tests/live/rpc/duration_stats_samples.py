"""Experience as it may be told, and as it may not."""

from typing import Any, Final

import msgspec

from hanse.core.broker.elastic.duration_stats import KINDS_PER_MESSAGE_MAX, SIZES_MAX, TOTAL_MAX
from hanse.live.rpc.broker_to_broker_validators import KIND_CHARACTERS_MAX
from hanse.model.duration_stats import DurationStats, DurationStatsUpdate, KindStats

BIG: Final = 1 << 63
SEEN: Final = DurationStats(500, 0, 7, 2)
EXPERIENCE: Final = DurationStatsUpdate(0, 4, (KindStats("default/render/main", 4, (SEEN,)),), 3)


def _spoilt(**changes: Any) -> DurationStatsUpdate:
    return msgspec.structs.replace(EXPERIENCE, **changes)


def _learned(**changes: Any) -> DurationStatsUpdate:
    return _spoilt(kinds=(msgspec.structs.replace(EXPERIENCE.kinds[0], **changes),))


NONSENSE_EXPERIENCE: Final[dict[str, Any]] = {
    "experience: backwards": _spoilt(since=5),
    "experience: versions": _spoilt(until=BIG),
    "experience: heard": _spoilt(acked_version=-1),
    "experience: many": _spoilt(kinds=EXPERIENCE.kinds * (KINDS_PER_MESSAGE_MAX + 1)),
    "experience: later than all": _learned(version=5),
    "experience: no version": _learned(version=0),
    "experience: no size": _learned(sizes=()),
    "experience: sizes": _learned(sizes=(SEEN,) * (SIZES_MAX + 1)),
    "experience: no name": _learned(kind=""),
    "experience: long name": _learned(kind="x" * (KIND_CHARACTERS_MAX + 1)),
    "experience: control characters": _learned(kind="x\n"),
    "experience: cpu": _learned(sizes=(DurationStats(-1, 0, 7, 2),)),
    "experience: gpu": _learned(sizes=(DurationStats(1, BIG, 7, 2),)),
    "experience: sum": _learned(sizes=(DurationStats(1, 0, TOTAL_MAX + 1, 2),)),
    "experience: count": _learned(sizes=(DurationStats(1, 0, 7, 0),)),
}
