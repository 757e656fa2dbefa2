"""The table of roles: who may say what to whom, exhaustively."""

from typing import get_args

import pytest

from hanse.live.rpc.peer_permissions import ALLOWED_MESSAGES, AddressBook, Peer
from hanse.model import messages as m
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.messages import Ack, SequencedMessage, SoftMessage
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased
from hanse.security.identity import Identity, Role
from tests.live.rpc.members import HOST

PAST = (HistoryQuery, HistoryReply)
SAID: dict[str, tuple[str, tuple[type, ...]]] = {
    "broker to warden": (
        "bw",
        (
            m.Claim,
            m.Demand,
            m.CancelAttempts,
            m.AckEnds,
            m.RegisterStandby,
            m.RequestTakeover,
            m.AbortTakeover,
            m.HeartbeatReply,
            m.RequestSnapshot,
            CloseShard,
            *PAST,
        ),
    ),
    "warden to broker": (
        "wb",
        (
            m.ClaimReply,
            m.TaskUpdates,
            m.OwnershipReply,
            m.WardenHeartbeat,
            m.ClusterSnapshot,
            m.ClusterDelta,
            CloseShardReply,
            *PAST,
        ),
    ),
    "broker to broker": (
        "bb",
        (
            m.ReplicateJobs,
            m.ReplicaUpdate,
            m.OwnershipTransferred,
            m.WatchJobs,
            m.JobEnded,
            m.Gossip,
            DurationStatsUpdate,
            OwnershipReleased,
            DropReplicas,
            DuplicateQuery,
            DuplicateReply,
            *PAST,
        ),
    ),
    "warden to runner": ("wr", (m.RunnerOrders, m.RunnerLease, m.Rejoin, HistoryQuery)),
    "runner to warden": ("rw", (m.RunnerReport, m.OpenSession, m.RunnerHeartbeat, HistoryReply)),
}
"""The protocol's sections, written down a second time: the table must say the same."""
LETTERS = {"b": Role.BROKER, "w": Role.WARDEN, "r": Role.RUNNER}
BODIES = (*get_args(SequencedMessage), *get_args(SoftMessage))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("receiver", Role)
@pytest.mark.parametrize("sender", Role)
def test_every_role_says_only_what_is_its_to_say(sender: Role, receiver: Role, body: type) -> None:
    own = Identity("local", receiver, "me")
    other = Identity("local", sender, "you")
    book = AddressBook(own, {"you": Peer(other, HOST, 1)})
    allowed = book.allowed_messages(other, "you", "me")
    assert not isinstance(allowed, str)
    expected = any(
        (LETTERS[pair[0]], LETTERS[pair[1]]) == (sender, receiver) and body in (*bodies, Ack)
        for pair, bodies in SAID.values()
    )
    assert (body in allowed) is expected


def test_every_kind_of_message_has_a_sender() -> None:
    said = {body for bodies in ALLOWED_MESSAGES.values() for body in bodies}
    assert said == set(BODIES)


def test_names_belong_to_identities() -> None:
    own, broker = Identity("local", Role.WARDEN, "c1"), Identity("local", Role.BROKER, "b1")
    thief = Identity("local", Role.BROKER, "b2")
    book = AddressBook(own, {"b1": Peer(broker, HOST, 1), "b2": Peer(thief, HOST, 2)})
    assert book.allowed_messages(thief, "b1", "c1") == "source"
    assert book.allowed_messages(thief, "nobody", "c1") == "source"
    assert book.allowed_messages(thief, "b2", "b1") == "target"
    assert book.allowed_messages(thief, "b2", "nobody") == "target"
    assert book.allowed_messages(thief, "c1", "c1") == "source"
    assert m.Claim in book.allowed_messages(broker, "b1", "c1")
