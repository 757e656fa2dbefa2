"""Reasons of a broker's decisions about placement, and limits that several of its modules share."""

from typing import Final

from hanse.model.decision_record import DecisionKind

STANDING_LEAST: Final = 200
"""Clusters with a lower standing are tried last."""
NO_ROOM_SEEN: Final = "no room in any cluster's view"
LITTLE_TO_BORROW: Final = "too little room in the others' shares to take it unasked"
ASKED_FOR: Final = "no new room since it was refused or last looked for; the wardens are asked"
WARDENS_JUDGE: Final = "only the wardens can judge what it may run beside; they are asked"
NONE_OPEN: Final = "no cluster that it may use takes claims at the moment"
DECISION_NO_ROOM: Final = f"{DecisionKind.WAITING}:{NO_ROOM_SEEN}"
"""Last decision of a group for which no view showed room."""
DECISIONS_WITHOUT_SEARCH: Final = tuple(
    [f"{DecisionKind.WAITING}:{why}" for why in (LITTLE_TO_BORROW, ASKED_FOR, WARDENS_JUDGE, NONE_OPEN)]
)
"""Last decisions that stay true as long as no cluster can be searched."""
