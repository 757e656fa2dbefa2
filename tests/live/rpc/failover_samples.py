"""Messages about the end of estates, in order and not, for the tests of vetting."""

from typing import Any

from hanse.live.rpc.field_validators import JOB_MIN
from hanse.model import messages as m
from hanse.model.ids import JobId
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased

BIG = 1 << 63

CLOSE, CLOSED = CloseShard("b2#1", 1), CloseShardReply("b1#1", 1, True)
GONE = m.OwnershipReply("b1#1", 1 << 61, "", False, 1, refusal=m.RefusalReason.CLOSED)
HANDED, OVER = OwnershipReleased("b2#1", 1 << 20), DropReplicas("b2#1")
SEEK, SOUGHT = DuplicateQuery(JobId(JOB_MIN), "mine"), DuplicateReply(JobId(JOB_MIN), 0)
BROKERS_SAY = (CLOSE, HistoryQuery(7))
WARDENS_SAY = (GONE, CLOSED, HistoryReply(7, 3, 0))
PEERS_SAY = (HANDED, OVER, SEEK, SOUGHT)

NONSENSE_ESTATES: dict[str, Any] = {
    "close: estate": CloseShard("b2", 1),
    "close: generation": CloseShard("b2#1x", 1),
    "close: long generation": CloseShard("b2#" + "1" * 19, 1),
    "close: foreign digits": CloseShard("b2#\u0661", 1),
    "close: nobody's": CloseShard("#1", 1),
    "close: long name": CloseShard("x" * 160 + "#1", 1),
    "close: term": CloseShard("b2#1", -1),
    "closed: estate": CloseShardReply("", 1, True),
    "closed: term": CloseShardReply("b1#1", BIG, True),
    "handed: estate": OwnershipReleased("b2#", 1),
    "handed: term": OwnershipReleased("b2#1", BIG),
    "over: estate": DropReplicas("\n#1"),
    "seek: job": DuplicateQuery(JobId(0), "mine"),
    "seek: nobody": DuplicateQuery(JobId(JOB_MIN), ""),
    "seek: client id": DuplicateQuery(JobId(JOB_MIN), "x" * 1_000),
    "sought: job": DuplicateReply(JobId(BIG), 0),
    "sought: known": DuplicateReply(JobId(JOB_MIN), 1),
    "recall: number": HistoryQuery(BIG),
    "recalled: taken": HistoryReply(7, -1, 0),
    "recalled: acked": HistoryReply(7, 3, BIG),
    "taken: term": m.OwnershipTransferred("b1#1", (), BIG),
}
