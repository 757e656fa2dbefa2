"""Vetting: nothing that makes no sense passes, and everything that honest machines say does."""

from typing import Any, get_args

import pytest

from hanse.core.messaging.link import WINDOW_MAX
from hanse.live.rpc.broker_to_broker_validators import WATCHED_MAX
from hanse.live.rpc.field_validators import JOB_MAX, NUMBER_MAX, TASK_MAX
from hanse.live.rpc.message_validators import VALIDATORS
from hanse.live.rpc.validation_context import STALE
from hanse.model import messages as m
from hanse.model.constraints import Is, Not
from hanse.model.hardware.devices import Device
from hanse.model.hardware.facts import CpuFacts, DiskFacts, HardwareFacts
from hanse.model.ids import ClusterId, JobId, TaskId
from hanse.model.job import Affinity, JobSpec, TaskGroup
from hanse.model.messages import RefusalReason, SequencedMessage, SoftMessage
from hanse.model.resources import MEMORY_BYTES_MAX, Resources
from hanse.sim.chaos import run_seed
from tests.live.rpc.duration_stats_samples import NONSENSE_EXPERIENCE
from tests.live.rpc.failover_samples import NONSENSE_ESTATES
from tests.live.rpc.honest import REFUSED, VETTED, vetted_factories
from tests.live.rpc.message_samples import (
    ASK,
    BRIEF,
    C1,
    DELTA,
    END,
    JOB,
    LAYOUT,
    LINE,
    LOT,
    NOW,
    REPLICA,
    SENDERS,
    SHAPE,
    START,
    TASK,
    TO_WARDEN,
    brief,
    delta,
    end,
    line,
    lot,
    replica,
    shape,
    snapshot,
    spoilt,
    start,
    verdict,
)

SEEDS = range(8)


def test_there_is_a_vetter_and_a_sample_for_every_kind() -> None:
    kinds = {*get_args(SequencedMessage), *get_args(SoftMessage)}
    assert set(VALIDATORS) == kinds
    assert {type(body) for bodies in SENDERS.values() for body in bodies} == kinds


@pytest.mark.parametrize(
    "body", [body for bodies in SENDERS.values() for body in bodies], ids=lambda body: type(body).__name__
)
def test_what_is_in_order_passes(body: Any) -> None:
    assert verdict(body) is None
    sequenced = type(body) in get_args(SequencedMessage)
    for wrong in ({"seq": -1 if sequenced else 1}, {"ack": -1}, {"ack": 1 << 63}, {"session": -1}):
        assert verdict(body, **wrong) is not None
    assert verdict(body, seq=(1 << 63) if sequenced else -(1 << 63)) is not None
    assert verdict(body, source="stranger") is not None, "the machine was never told of it"


def deep(levels: int) -> Is | Not:
    condition: Is | Not = Is("zone", "a")
    for _ in range(levels):
        condition = Not(condition)
    return condition


BIG, LONG = 1 << 63, "x" * 5_000
NONSENSE: dict[str, Any] = {
    "claim: number": spoilt(TO_WARDEN[0], number=-1),
    "claim: round": spoilt(TO_WARDEN[0], rounds=(("b1#1", -1),)),
    "claim: estate": spoilt(TO_WARDEN[0], rounds=(("", 1),)),
    "claim: echo of the future": spoilt(TO_WARDEN[0], echo=NOW + 1),
    "claim: release": spoilt(TO_WARDEN[0], releases=(-1,)),
    "claim: settled": spoilt(TO_WARDEN[0], acked_ends=((TASK, -1),)),
    "claim: line twice": spoilt(TO_WARDEN[0], demand=(LINE, LINE)),
    "claim: many lots": spoilt(TO_WARDEN[0], batches=(LOT,) * 5_000),
    "lot: no tasks": lot(tasks=(), attempts=(), nodes=()),
    "lot: short attempts": lot(attempts=(1,)),
    "lot: short nodes": lot(nodes=(1,)),
    "lot: long nodes": lot(nodes=(1, 1, 1)),
    "lot: task twice": lot(tasks=(1, 1)),
    "lot: task below": lot(tasks=(-1, 1)),
    "lot: task beyond": lot(tasks=(0, 1 << 20)),
    "lot: attempt": lot(attempts=(0, 1)),
    "lot: huge attempt": lot(attempts=(1, BIG)),
    "lot: node below": lot(nodes=(-2, 0)),
    "lot: node beyond": lot(nodes=(0, 1 << 22)),
    "lot: one task below": lot(tasks=(-1,), attempts=(1,), nodes=(0,)),
    "lot: one attempt below": lot(tasks=(0,), attempts=(0,), nodes=(0,)),
    "lot: one node beyond": lot(tasks=(0,), attempts=(1,), nodes=(1 << 22,)),
    "lot: job": lot(job=5),
    "lot: huge job": lot(job=JOB_MAX + 1),
    "lot: group": lot(group=-1),
    "lot: lease": lot(lease=-1),
    "lot: size below": lot(size=Resources(cpu=999)),
    "lot: size above": lot(size=Resources(cpu=1_001)),
    "lot: size negative": lot(size=Resources(cpu=-1)),
    "brief: estate": brief(shard=LONG),
    "brief: payload": brief(payload=bytes((1 << 20) + 1)),
    "brief: grace": brief(grace=-1),
    "brief: duration": brief(duration=0),
    "shape: nothing asked": shape(ask=Resources()),
    "shape: negative": shape(ask=Resources(cpu=1, memory=-1)),
    "shape: cpu": shape(ask=Resources(cpu=BIG)),
    "shape: memory": shape(ask=Resources(memory=MEMORY_BYTES_MAX + 1)),
    "shape: gpu": shape(ask=Resources(gpu=BIG)),
    "shape: custom of nothing": shape(ask=Resources(custom=(("fpga", 0),))),
    "shape: custom cpu": shape(ask=Resources(custom=(("cpu", 1),))),
    "shape: custom twice": shape(ask=Resources(custom=(("a", 1), ("a", 1)))),
    "shape: custom unsorted": shape(ask=Resources(custom=(("b", 1), ("a", 1)))),
    "shape: many custom": shape(ask=Resources(custom=tuple((f"c{n:02}", 1) for n in range(17)))),
    "shape: nameless custom": shape(ask=Resources(custom=(("", 1),))),
    "shape: less than the least": shape(ask_max=Resources(cpu=1)),
    "shape: wrong most": shape(ask_max=Resources(cpu=BIG)),
    "shape: gang": shape(gang=-1),
    "shape: huge gang": shape(gang=(1 << 20) + 1),
    "shape: priority": shape(priority=1_001),
    "shape: labels": shape(labels=("x",) * 33),
    "shape: label": shape(labels=("\n",)),
    "shape: allowed": shape(clusters_allowed=("",)),
    "shape: forbidden": shape(clusters_forbidden=(LONG,)),
    "shape: affinities": shape(affinity=(Affinity("x"),) * 17),
    "shape: affinity": shape(affinity=(Affinity(""),)),
    "shape: deep condition": shape(where=deep(40)),
    "shape: condition": shape(where=Is("", "a")),
    "line: line": line(line=-1),
    "line: count": line(count=-1),
    "line: huge count": line(count=BIG),
    "line: long key": line(key=(1,) * 17),
    "line: huge key": line(key=(BIG,)),
    "line: shape": line(shape=m.Shape(Resources())),
    "line: a preference without costs": line(preference=m.NodePreference((), 0)),
    "line: a negative cost": line(preference=m.NodePreference((1, -1), 0)),
    "line: a cost that is no number of 62 bits": line(preference=m.NodePreference((1 << 62,), 1 << 63)),
    "line: costs of too many node classes": line(preference=m.NodePreference((1,) * 65, 0)),
    "line: a negative kind": line(shape=spoilt(SHAPE, kind=-1)),
    "demand: lines": m.Demand(tuple(spoilt(LINE, line=number) for number in range(65))),
    "cancel: lengths": m.CancelAttempts((TASK,), ()),
    "cancel: task": m.CancelAttempts((TaskId(5),), (1,)),
    "settle: lengths": m.AckEnds((), (1,)),
    "settle: attempt": m.AckEnds((TASK,), (-1,)),
    "register: estate": m.RegisterStandby("", 1, "b2"),
    "register: term": m.RegisterStandby("b1#1", -1, "b2"),
    "register: heir": m.RegisterStandby("b1#1", 1, LONG),
    "adopt: owner": m.RequestTakeover("b2#1", "", 1, 1),
    "adopt: bid": m.RequestTakeover("b2#1", "b2", 1, -1),
    "return: term": m.AbortTakeover("b2#1", BIG, 1),
    "beat reply: echo of the future": m.HeartbeatReply(NOW + 1, ()),
    "beat reply: negative echo": m.HeartbeatReply(-1, ()),
    "beat reply: estates": m.HeartbeatReply(NOW, ("",)),
    "sync: cluster": m.RequestSnapshot(ClusterId("c2")),
    "report: task": m.RunnerReport(((TaskId(1), 1),), ()),
    "report: end": m.RunnerReport((), (spoilt(END, attempt=-1),)),
    "hello: session": m.OpenSession(-1, NOW, (), (), ()),
    "hello: sent": m.OpenSession(1, BIG, (), (), ()),
    "hello: node": m.OpenSession(1, NOW, (4,), (), ()),
    "hello: running": m.OpenSession(1, NOW, (), ((TASK, -1),), ()),
    "hello: ended": m.OpenSession(1, NOW, (), (), (spoilt(END, exit_code=BIG),)),
    "hello: cpu": m.OpenSession(1, NOW, (), (), (), (), HardwareFacts(CpuFacts("x" * 256))),
    "hello: memory": m.OpenSession(1, NOW, (), (), (), (), HardwareFacts(memory=-1)),
    "hello: disks": m.OpenSession(1, NOW, (), (), (), (), HardwareFacts(disks=(DiskFacts("sda"),) * 65)),
    "hello: gpus": m.OpenSession(1, NOW, (), (), (), (), HardwareFacts(gpus=(Device(),) * 257)),
    "hello: files": m.OpenSession(1, NOW, (), (), (), (), HardwareFacts(gpus=(Device(paths=("x",) * 9),))),
    "hello: counters": m.OpenSession(1, NOW, (), (), (), (), HardwareFacts(perf_event_paranoid=99)),
    "runner beat: session": m.RunnerHeartbeat(-1, NOW),
    "runner beat: sent": m.RunnerHeartbeat(1, -1),
    "answer: number": m.ClaimReply(-1, (), ()),
    "answer: node": m.ClaimReply(1, ((TASK, -1),), ()),
    "answer: refused": m.ClaimReply(1, (), (m.RefusedTask(TASK, -1, RefusalReason.BUSY),)),
    "answer: task of no job": m.ClaimReply(1, (), (m.RefusedTask(TaskId(TASK + 2), 1, RefusalReason.BUSY),)),
    "answer: delta": m.ClaimReply(1, (), (), spoilt(DELTA, free=())),
    "offers: lease": m.TaskUpdates((), (), (m.Offer(0, 0, (1,)),)),
    "offers: line": m.TaskUpdates((), (), (m.Offer(1, -1, (1,)),)),
    "offers: nodes": m.TaskUpdates((), (), (m.Offer(1, 0, ()),)),
    "offers: node": m.TaskUpdates((), (), (m.Offer(1, 0, (-1,)),)),
    "offers: score": m.TaskUpdates((), (), (m.Offer(1, 0, (1,), -1),)),
    "offers: rival": m.TaskUpdates((), (), (m.Offer(1, 0, (1,), 0, 0, (BIG,)),)),
    "offers: prior": m.TaskUpdates((), (), (m.Offer(1, 0, (1,), 0, BIG),)),
    "withheld: node": m.RunnerReport((), (), ((99, Resources(cpu=1)),)),
    "withheld: amount": m.RunnerReport((), (), ((0, Resources(cpu=-1)),)),
    "withheld: many": m.RunnerReport((), (), ((0, Resources(cpu=1)),) * 9),
    "news: started": m.TaskUpdates(((TASK, 1, -1),), ()),
    "news: task of no job": m.TaskUpdates(((TaskId(TASK + 2), 1, 0),), ()),
    "end: task": end(task=TaskId(TASK_MAX + 1)),
    "end: task of no job": end(task=TaskId(TASK + 2)),
    "end: attempt": end(attempt=-1),
    "end: code": end(exit_code=BIG),
    "end: usage": end(usage=m.ResourceUsage(-1)),
    "end: note": end(note=LONG),
    "estate: owner": m.OwnershipReply("b1#1", 1, "\n", True),
    "estate: term": m.OwnershipReply("b1#1", -1, "b1", True),
    "estate: running": m.OwnershipReply("b1#1", 1, "b1", True, 1, ((TaskId(TASK + 2), 1),)),
    "estate: ended": m.OwnershipReply("b1#1", 1, "b1", True, 1, (), (spoilt(END, attempt=-1),)),
    "beat: cluster": m.WardenHeartbeat(ClusterId("c2"), 1, NOW, 1, ()),
    "beat: epoch": m.WardenHeartbeat(C1, -1, NOW, 1, ()),
    "beat: version": m.WardenHeartbeat(C1, 1, NOW, BIG, ()),
    "beat: sent": m.WardenHeartbeat(C1, 1, -1, 1, ()),
    "beat: rounds": m.WardenHeartbeat(C1, 1, NOW, 1, (("b1#1", -1),)),
    "delta: cluster": delta(cluster=ClusterId("c2")),
    "delta: lengths": delta(nodes=(0,)),
    "delta: node": delta(nodes=(0, -1)),
    "delta: room": delta(free=((1, 2, 0), (0, -1, 0))),
    "delta: much room": delta(free=((1, 2, 0), (0, (1 << 50) + 1, 0))),
    "delta: empty room": delta(free=((), ())),
    "delta: epoch": delta(epoch=-1),
    "delta: version": delta(version=BIG),
    "delta: since": delta(since=-1),
    "snapshot: cluster": snapshot(cluster=ClusterId("c2")),
    "snapshot: epoch": snapshot(epoch=-1),
    "snapshot: version": snapshot(version=-1),
    "snapshot: no nodes": snapshot(capacity=(), attributes=(), free=(), reserve=()),
    "snapshot: free": snapshot(free=((1, 1, 1),)),
    "snapshot: attributes": snapshot(attributes=()),
    "snapshot: width": snapshot(capacity=((1, 1),) * 4),
    "snapshot: free width": snapshot(free=((1, 1, 1, 1),) * 4),
    "snapshot: negative": snapshot(capacity=((-1, 1, 1),) * 4),
    "snapshot: too much": snapshot(capacity=((1 << 51, 1, 1),) * 4),
    "snapshot: dimensions": snapshot(dimensions=("cpu", "gpu", "memory")),
    "snapshot: unsorted": snapshot(
        dimensions=("cpu", "memory", "gpu", "b", "a"), capacity=((1,) * 5,) * 4, free=((1,) * 5,) * 4
    ),
    "snapshot: twice": snapshot(
        dimensions=("cpu", "memory", "gpu", "a", "a"), capacity=((1,) * 5,) * 4, free=((1,) * 5,) * 4
    ),
    "snapshot: many dimensions": snapshot(
        dimensions=("cpu", "memory", "gpu", *(f"x{n:02}" for n in range(30))),
        capacity=((1,) * 33,) * 4,
        free=((1,) * 33,) * 4,
    ),
    "snapshot: reserve": snapshot(reserve=(4,)),
    "snapshot: partitions": snapshot(partitions=("",)),
    "snapshot: attribute": snapshot(attributes=((("", 1),), (), (), ())),
    "snapshot: attribute value": snapshot(attributes=((("disk", BIG),), (), (), ())),
    "snapshot: another within the epoch": snapshot(epoch=1, dimensions=("cpu", "memory", "gpu", "x"),
                                                   capacity=((1,) * 4,) * 4, free=((1,) * 4,) * 4),
    "replicate: term": m.ReplicateJobs("b2#1", -1, ()),
    "replicate: many": m.ReplicateJobs("b2#1", 1, (REPLICA,) * 65),
    "replicate: job": replica(job=JobId(1)),
    "replicate: age": replica(age=-1),
    "replicate: spec": replica(spec=JobSpec((TaskGroup(count=0),))),
    "replicate: no groups": replica(spec=JobSpec(())),
    "replicate: index": replica(ends=((2, 5, 1),)),
    "replicate: state": replica(ends=((1, 4, 1),)),
    "replicate: attempt": replica(ends=((1, 5, -1),)),
    "progress: estate": m.ReplicaUpdate("", ()),
    "progress: state": m.ReplicaUpdate("b2#1", ((TASK, 8, 1),)),
    "progress: task of no job": m.ReplicaUpdate("b2#1", ((TaskId(TASK + 2), 5, 1),)),
    "progress: cancelled": m.ReplicaUpdate("b2#1", (), (JobId(0),)),
    "progress: forget": m.ReplicaUpdate("b2#1", (), (), (JobId(-1),)),
    "taken: estate": m.OwnershipTransferred(LONG, ()),
    "taken: job": m.OwnershipTransferred("b1#1", (JobId(0),)),
    "watch: round": m.WatchJobs(-1, ()),
    "watch: many": m.WatchJobs(1, (JOB,) * (WATCHED_MAX + 1)),
    "watched: state": m.JobEnded(1, JOB, 3),
    "watched: job": m.JobEnded(1, JobId(0), 5),
    "watched: round": m.JobEnded(-1, JOB, 5),
    "gossip: name": m.Gossip((m.MemberStatus("", 1, 1),)),
    "gossip: epoch": m.Gossip((m.MemberStatus("b2", -1, 1),)),
    "gossip: beat": m.Gossip((m.MemberStatus("b2", 1, BIG),)),
    **NONSENSE_EXPERIENCE,
    **NONSENSE_ESTATES,
    "gossip: many": m.Gossip((m.MemberStatus("b2", 1, 1),) * 1_024),
    "orders: echo of the future": m.RunnerOrders(NOW + 1),
    "orders: start twice": m.RunnerOrders(NOW, (START, START)),
    "orders: layouts": m.RunnerOrders(NOW, (START,), layouts=(LAYOUT, spoilt(LAYOUT, first=9))),
    "orders: layout without start": m.RunnerOrders(NOW, layouts=(LAYOUT,)),
    **{
        f"orders: layout with {fields}": m.RunnerOrders(NOW, (START,), layouts=(spoilt(LAYOUT, **fields),))
        for fields in (
            {"job": 0}, {"first": -1}, {"count": 0}, {"group": ""}, {"port": -1}, {"port": 65_536},
            {"ranks": (0, 2, 2)}, {"ranks": (0, 2, 4)}, {"ranks": (0, 2)}, {"ranks": ()}, {"runs": ()},
            {"runs": ((2, "a", 2), (-1, "b", 1))}, {"runs": ((2, "a", 3), (3, "b", 0))},
            {"runs": ((2, "a b", 3),)}, {"runs": ((2, "a,b", 3),)}, {"runs": ((2, "", 3),)},
        )
    },
    "orders: node of another": start(node=1),
    "orders: task": start(task=TaskId(0)),
    "orders: attempt": start(attempt=0),
    "orders: size": start(size=Resources(cpu=-1)),
    "orders: estate": start(shard=""),
    "orders: payload": start(payload=bytes((1 << 20) + 1)),
    "orders: grace": m.RunnerOrders(NOW, (), (m.StopTask(TASK, 1, -1),)),
    "orders: stop": m.RunnerOrders(NOW, (), (m.StopTask(TaskId(0), 1, 0),)),
    "orders: forget": m.RunnerOrders(NOW, (), (), ((TASK, -1),)),
    "lease: session": m.RunnerLease(-1, NOW, ()),
    "lease: echo of the future": m.RunnerLease(1, NOW + 1, ()),
    "lease: lapsed": m.RunnerLease(1, NOW, ("",)),
    "rejoin: session": m.Rejoin(-1),
}  # fmt: skip


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_refused(what: str) -> None:
    problem = verdict(NONSENSE[what]) or ""
    assert problem != STALE
    assert 0 < len(problem) < 100


def test_nonsense_of_every_kind_is_tried() -> None:
    assert {type(body) for body in NONSENSE.values()} == set(VALIDATORS) - {m.Ack}


# --- what may look wrong and is not -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        lot(nodes=(3, 1_000)),  # by an older view of a larger cluster: the warden finds another node
        lot(
            template=spoilt(BRIEF, shape=m.Shape(ASK, ask_max=Resources(cpu=4_000))),
            size=Resources(cpu=2_500),
        ),
        m.RegisterStandby("b1#1", 1, ""),  # nobody to inherit
        m.OwnershipReply("b1#1", 1, "", False),  # nobody owns it yet
        m.JobEnded(0, JOB, 5),
        m.TaskUpdates(((TaskId(TASK_MAX), 1, 3),), ()),  # a job that is not known here (any more)
        end(note="\x1b[31mred"),  # a backend's words are its own
        delta(epoch=0, nodes=(0, 99)),  # of an earlier life: nobody will look at it
        m.Demand(()),
        lot(attempts=(NUMBER_MAX, NUMBER_MAX)),
    ],
    ids=range(10),
)
def test_what_honest_machines_can_say_is_not_refused(body: Any) -> None:
    assert verdict(body) is None


def test_watching_cannot_fill_a_links_window_at_once() -> None:
    assert WATCHED_MAX * 16 < WINDOW_MAX


# --- honest mail ------------------------------------------------------------------------------------------


def test_nothing_that_a_league_in_trouble_says_is_refused() -> None:
    REFUSED.clear()
    VETTED[0] = 0
    for seed in SEEDS:
        run_seed(seed, vetted_factories())
    assert REFUSED == []
    assert VETTED[0] > 10_000
