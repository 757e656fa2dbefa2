"""A message of every type that is in order, variants of each, and what validation says of them."""

from typing import Any, get_args

import msgspec

from hanse.core.config import BrokerConfig, NodeConfig, RunnerConfig, WardenConfig
from hanse.live.rpc.field_validators import JOB_MIN, TASK_MIN
from hanse.live.rpc.validation import validate
from hanse.live.rpc.validation_context import (
    ValidationContext,
    broker_validation_context,
    runner_validation_context,
    warden_validation_context,
)
from hanse.model import messages as m
from hanse.model.hardware.devices import Device
from hanse.model.hardware.facts import CpuCache, CpuFacts, DiskFacts, HardwareFacts, NetworkFacts
from hanse.model.ids import ClusterId, JobId, TaskId
from hanse.model.job import JobSpec, TaskGroup, UnreachablePolicy
from hanse.model.messages import Envelope, Outcome, RefusalReason, SequencedMessage
from hanse.model.resources import Resources
from tests.live.rpc.duration_stats_samples import EXPERIENCE
from tests.live.rpc.failover_samples import BROKERS_SAY, PEERS_SAY, WARDENS_SAY

JOB = JobId(JOB_MIN)
TASK = TaskId(TASK_MIN)
C1 = ClusterId("c1")
NOW = 1_000_000
ASK = Resources(cpu=1_000)
SHAPE = m.Shape(ASK)
BRIEF = m.TaskTemplate(SHAPE, "b1#1")
LOT = m.TaskBatch(JOB, 0, BRIEF, (0, 1), (1, 1), (3, -1), ASK)
LINE = m.DemandLine(0, SHAPE, (1, -2), 3, preference=m.NodePreference((1_500, 9_000), 1_950))
HARDWARE = HardwareFacts(
    CpuFacts("Xeon", "intel-cascadelake-20c", 1, 20, 40, 1, (CpuCache("L2", 1 << 20),)),
    1 << 37,
    (DiskFacts("sda", 1 << 40, True, "ST2000"),),
    (NetworkFacts("eno1", 25_000),),
    (Device("gpu", 0, ("/dev/nvidia0",), "A100", 40 << 30, "GPU-1", "nvidia"),),
    -1,
)
END = m.AttemptEnd(TASK, 1, Outcome.SUCCEEDED, 0, m.ResourceUsage(1, 2, 3), "fine")
DELTA = m.Delta(C1, 1, 5, 6, (0, 3), ((1, 2, 0), (0, 0, 0)))
SPEC = JobSpec((TaskGroup(count=2),))
REPLICA = m.Replica(JOB, SPEC, 5, ((1, 5, 1),))
START = m.StartTask(TASK, 1, 2, ASK, "b1#1", UnreachablePolicy.MOVE, b"x")
LAYOUT = m.GroupLayout(JOB, 0, 4, "main", (0, 2, 3), ((2, "10.0.0.5", 2), (3, "fd00::6", 1)), 20_000)
SNAPSHOT = m.ClusterSnapshot(
    cluster=C1,
    epoch=1,
    version=6,
    dimensions=("cpu", "memory", "gpu"),
    capacity=((4, 5, 6),) * 4,
    attributes=((("zone", "a"),), (), (("disk", 7),), (("ssd", True),)),
    reserve=(3,),
    partitions=("b1", "b2"),
    free=((4, 5, 6),) * 4,
)
TO_WARDEN = (
    m.Claim(1, (("b1#1", 1),), NOW, (LOT,), (7,), (LINE,)),
    m.Demand((LINE,)),
    m.CancelAttempts((TASK,), (1,)),
    m.AckEnds((TASK,), (1,)),
    m.RegisterStandby("b1#1", 1, "b2"),
    m.RequestTakeover("b2#1", "b2", 1, 1),
    m.AbortTakeover("b2#1", 1, 1),
    *BROKERS_SAY,
    m.HeartbeatReply(NOW, ("b1#1",)),
    m.RequestSnapshot(C1),
)
FROM_RUNNER = (
    m.RunnerReport(((TASK, 1),), (END,)),
    m.OpenSession(1, NOW, (0, 3), ((TASK, 1),), (END,)),
    m.OpenSession(1, NOW, (0, 3), (), (), (), HARDWARE),
    m.RunnerHeartbeat(1, NOW),
)
FROM_WARDEN = (
    m.ClaimReply(1, ((TASK, 2),), (m.RefusedTask(TASK, 1, RefusalReason.NO_ROOM),), DELTA),
    m.TaskUpdates((), (), (m.Offer(1, 0, (2,), 500, 500, (3, -7)),)),
    m.TaskUpdates(((TASK, 1, 3),), (END,)),
    m.OwnershipReply("b1#1", 1, "b1", True, 0, ((TASK, 1),), (END,)),
    *WARDENS_SAY,
    m.WardenHeartbeat(C1, 1, NOW, 6, (("b1#1", 1),)),
    SNAPSHOT,
    m.ClusterDelta(DELTA),
)
FROM_BROKER = (
    m.ReplicateJobs("b2#1", 1, (REPLICA,)),
    m.ReplicaUpdate("b2#1", ((TASK, 7, 0),), (JOB,), (JOB,)),
    m.OwnershipTransferred("b1#1", (JOB,), 1 << 20),
    *PEERS_SAY,
    m.WatchJobs(1, (JOB,)),
    m.JobEnded(1, JOB, -1),
    m.Gossip((m.MemberStatus("b2", 1, 1),)),
    EXPERIENCE,
)
TO_RUNNER = (
    m.RunnerOrders(NOW, (START,), (m.StopTask(TASK, 1, 0),), ((TASK, 1),)),
    m.RunnerOrders(NOW, (START,), layouts=(LAYOUT,)),
    m.RunnerLease(1, NOW, ("b1#1",)),
    m.Rejoin(1),
)
SENDERS = {
    "b1": (*TO_WARDEN, m.Ack()),
    "r1": FROM_RUNNER,
    "c1": (*FROM_WARDEN, *TO_RUNNER),
    "b2": FROM_BROKER,
}


def limits_for(body: object) -> ValidationContext:
    """The machine that such a message is for: broker b1, warden c1 of four nodes, or its runner r1."""
    if body in FROM_WARDEN or type(body) in map(type, (*FROM_WARDEN, *FROM_BROKER)):
        limits = broker_validation_context(BrokerConfig("b1", 1, ("b1", "b2"), ("c1",)))
        limits.count_tasks = lambda job: 2 if job == JOB else None
        limits.learn_layout(SNAPSHOT)
    elif type(body) in map(type, TO_RUNNER):
        limits = runner_validation_context(RunnerConfig("r1", "c1", (0, 2)))
    else:
        limits = warden_validation_context(WardenConfig("c1", (NodeConfig(ASK, (), "r1"),) * 4, ("b1", "b2")))
    limits.clock = lambda: NOW
    return limits


def sender_of(body: object) -> str:
    return next(name for name, bodies in SENDERS.items() if type(body) in map(type, bodies))


def verdict(body: Any, **about: Any) -> str | None:
    """What vetting says of a body in an envelope that is otherwise in order."""
    sequenced = type(body) in get_args(SequencedMessage)
    fields = {
        "source": sender_of(body),
        "target": "x",
        "session": 0,
        "seq": int(sequenced),
        "ack": 0,
        **about,
    }
    return validate(Envelope(**fields, body=body), limits_for(body))


def spoilt(body: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(body, **changes)


def lot(**changes: Any) -> m.Claim:
    return spoilt(TO_WARDEN[0], batches=(spoilt(LOT, **changes),))  # type: ignore[no-any-return]


def brief(**changes: Any) -> m.Claim:
    return lot(template=spoilt(BRIEF, **changes))


def shape(**changes: Any) -> m.Claim:
    changed = spoilt(SHAPE, **changes)
    return lot(template=spoilt(BRIEF, shape=changed), size=changed.ask)


def line(**changes: Any) -> m.Demand:
    return m.Demand((spoilt(LINE, **changes),))


def end(**changes: Any) -> m.TaskUpdates:
    return m.TaskUpdates((), (spoilt(END, **changes),))


def delta(**changes: Any) -> m.ClusterDelta:
    return m.ClusterDelta(spoilt(DELTA, **changes))


def snapshot(**changes: Any) -> m.ClusterSnapshot:
    return spoilt(SNAPSHOT, **{"epoch": 2, **changes})  # type: ignore[no-any-return]


def replica(**changes: Any) -> m.ReplicateJobs:
    return m.ReplicateJobs("b2#1", 1, (spoilt(REPLICA, **changes),))


def start(**changes: Any) -> m.RunnerOrders:
    return m.RunnerOrders(NOW, (spoilt(START, **changes),))
