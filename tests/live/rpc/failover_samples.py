"""Messages about the end of estates, in order and not, for the tests of vetting."""

from typing import Any

from hanse.live.rpc.field_validators import JOB_MIN
from hanse.model import messages as m
from hanse.model.ids import JobId
from hanse.model.messages.duplicate_check import Seek, Sought
from hanse.model.messages.history_check import Recall, Recalled
from hanse.model.messages.shard_teardown import Close, Closed, Handed, Over

BIG = 1 << 63

CLOSE, CLOSED = Close("b2#1", 1), Closed("b1#1", 1, True)
GONE = m.Estate("b1#1", 1 << 61, "", False, 1, refusal=m.Refusal.CLOSED)
HANDED, OVER = Handed("b2#1", 1 << 20), Over("b2#1")
SEEK, SOUGHT = Seek(JobId(JOB_MIN), "mine"), Sought(JobId(JOB_MIN), 0)
BROKERS_SAY = (CLOSE, Recall(7))
WARDENS_SAY = (GONE, CLOSED, Recalled(7, 3, 0))
PEERS_SAY = (HANDED, OVER, SEEK, SOUGHT)

NONSENSE_ESTATES: dict[str, Any] = {
    "close: estate": Close("b2", 1),
    "close: generation": Close("b2#1x", 1),
    "close: long generation": Close("b2#" + "1" * 19, 1),
    "close: foreign digits": Close("b2#\u0661", 1),
    "close: nobody's": Close("#1", 1),
    "close: long name": Close("x" * 160 + "#1", 1),
    "close: term": Close("b2#1", -1),
    "closed: estate": Closed("", 1, True),
    "closed: term": Closed("b1#1", BIG, True),
    "handed: estate": Handed("b2#", 1),
    "handed: term": Handed("b2#1", BIG),
    "over: estate": Over("\n#1"),
    "seek: job": Seek(JobId(0), "mine"),
    "seek: nobody": Seek(JobId(JOB_MIN), ""),
    "seek: client id": Seek(JobId(JOB_MIN), "x" * 1_000),
    "sought: job": Sought(JobId(BIG), 0),
    "sought: known": Sought(JobId(JOB_MIN), 1),
    "recall: number": Recall(BIG),
    "recalled: taken": Recalled(7, -1, 0),
    "recalled: acked": Recalled(7, 3, BIG),
    "taken: term": m.Taken("b1#1", (), BIG),
}
