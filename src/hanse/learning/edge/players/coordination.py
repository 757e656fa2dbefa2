"""Ways of coordination, compared: no information, 64 gossiped floats, full sharing, or a centre that decides.

Only the shared information differs; rule, network, streams and conflict rule are the same. Gossip is sent at
the start of each step of time and may be late or lost; a cluster uses the last it has received. Bytes count
what is sent for the decisions of one round or step: gossip is 64 floats of 4 bytes to each other cluster;
full sharing is a cluster's pending and running tasks and free room to each other cluster in every round; the
centre gets the same from each cluster and answers each with one choice.
"""

from collections.abc import Callable
from time import process_time
from typing import Final, Literal

import msgspec
import numpy as np

from hanse.learning.edge.env.keyed_random import derive_key, uniform
from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Floats, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import Streams
from hanse.learning.edge.env.world import EdgeWorld, StepResult
from hanse.learning.edge.network import network as networks
from hanse.learning.edge.network.features import Features, encode
from hanse.learning.edge.network.network import EdgeNetwork
from hanse.learning.edge.players.play import EpisodeOutcome, play
from hanse.learning.edge.policies import priced
from hanse.learning.edge.policies.priced import PricedRule

Mode = Literal["none", "gossip", "full", "central"]

GOSSIP_FLOATS: Final = 64
_TASK_BYTES: Final = 20
"""Bytes of a pending task in a message: number 8, kind 2, wait 2, reach 8."""
_RUNNING_BYTES: Final = 8
_ROOM_BYTES: Final = 4
_ANSWER_BYTES: Final = 12
_LOSS_KEY: Final = 9

TRIPS: Final[dict[str, int]] = {"none": 2, "gossip": 2, "full": 3, "central": 2}
"""One-way messages on the critical path of a decision.

State (full: 1, central: 1), claim and answer (2), or answer (1).
"""


class GossipLink(msgspec.Struct, frozen=True):
    """Delay and loss of gossip."""

    delay_steps: int = 0
    loss: float = 0.0


class CoordinationResult(msgspec.Struct, frozen=True, eq=False):
    """Result of one way of coordination on some streams."""

    outcome: EpisodeOutcome
    bytes_per_start: float
    conflicts_per_start: float
    """Choices that lost their task and had to be made again, per started task."""
    compute_ms: float
    """CPU time of one round's decisions of all clusters in one episode, in milliseconds (batched)."""
    trips: int


class _GossipState:
    """Last gossip that each cluster has received from each other, for all episodes of the batch."""

    def __init__(self, episodes: int, clusters: int, link: GossipLink) -> None:
        self.link = link
        self.free = np.full((episodes, clusters, clusters, 2), NONE, dtype=np.int64)
        self.summary = np.zeros((episodes, clusters, clusters, GOSSIP_FLOATS - 2), dtype=np.float32)
        depth = link.delay_steps + 1
        self.late = np.full((depth, episodes, clusters, 2), NONE, dtype=np.int64)
        self.late_summary = np.zeros((depth, episodes, clusters, GOSSIP_FLOATS - 2), dtype=np.float32)

    def exchange(self, world: EdgeWorld, view: EdgeView, summary: Callable[[], Floats | None]) -> None:
        """At the start of a step of time, send gossip and receive what has arrived."""
        fresh = np.flatnonzero((world.state.rounds == 0) & world.unfinished)
        if not len(fresh):
            return
        episode = world.state.episode[fresh]
        summaries = summary()
        sent = None if summaries is None else summaries[fresh].copy()
        key = derive_key(
            world.streams.seed[fresh].astype(np.uint64), np.asarray(_LOSS_KEY) + view.time[fresh]
        )
        n = view.task.shape[1]
        batches = uniform(
            derive_key(derive_key(key[:, None], np.arange(n)[None])[:, :, None], np.arange(n)[None, None])
        )
        self._deliver(episode, view.free[fresh].copy(), sent, batches >= self.link.loss)

    def _deliver(self, episode: Ints, free: Ints, summaries: Floats | None, arrived: Flags) -> None:
        """Deliver with the delay: what is received now was sent so many steps ago."""
        self.late[1:, episode] = self.late[:-1, episode]
        self.late[0, episode] = free
        if summaries is not None:
            self.late_summary[1:, episode] = self.late_summary[:-1, episode]
            self.late_summary[0, episode] = summaries
        old, old_summaries = self.late[-1, episode], self.late_summary[-1, episode]
        new = arrived & (old[:, None, :, 0] != NONE)
        self.free[episode] = np.where(new[..., None], old[:, None], self.free[episode])
        self.summary[episode] = np.where(new[..., None], old_summaries[:, None], self.summary[episode])


def _own_room(view: EdgeView) -> Ints:
    """Return (E, N, N, 2) the room of the cluster itself, and nothing of the others."""
    n = view.task.shape[1]
    own = np.eye(n, dtype=np.bool_)[None, :, :, None]
    return np.where(own, view.free[:, None], NONE)


def coordinate(
    setting: Setting,
    streams: Streams,
    rule: PricedRule,
    mode: Mode,
    network: EdgeNetwork | None = None,
    link: GossipLink | None = None,
) -> CoordinationResult:
    """Play the streams with the rule, or the network, under one way of coordination."""
    gossip = _GossipState(len(streams.seed), setting.clusters, link or GossipLink())
    spent = {"seconds": 0.0, "rounds": 0.0, "bytes": 0.0}

    def player(world: EdgeWorld) -> StepResult:
        view = world.view()
        begun = process_time()
        choice = _choice(mode, rule, network, gossip, world, view)
        spent["seconds"] += process_time() - begun
        spent["rounds"] += float(world.unfinished.sum())
        spent["bytes"] += _bytes_sent(mode, world, view)
        return world.step(choice)

    outcome = play(setting, streams, player)
    starts = outcome.completion.size
    return CoordinationResult(
        outcome=outcome,
        bytes_per_start=spent["bytes"] / starts,
        conflicts_per_start=float(outcome.conflicts.sum()) / starts,
        compute_ms=1e3 * spent["seconds"] / max(spent["rounds"], 1.0),
        trips=TRIPS[mode],
    )


def _choice(
    mode: Mode,
    rule: PricedRule,
    network: EdgeNetwork | None,
    gossip: _GossipState,
    world: EdgeWorld,
    view: EdgeView,
) -> Choice:
    """Return the choice under a mode."""
    if network is not None:
        return _network_choice(mode, rule, network, gossip, world, view)
    if mode == "central":
        return priced.choose_in_turn(rule, view)
    if mode == "full":
        return priced.choose_alone(rule, view, priced.shared_room(view))
    if mode == "none":
        return priced.choose_alone(rule, view, _own_room(view))
    gossip.exchange(world, view, lambda: None)
    return priced.choose_alone(rule, view, _gossiped_room(gossip, world, view))


def _gossiped_room(gossip: _GossipState, world: EdgeWorld, view: EdgeView) -> Ints:
    """Return the gossiped room, in the round in which it is fresh.

    After that, a task that the others left may be taken.
    """
    own = np.eye(view.task.shape[1], dtype=np.bool_)[None, :, :, None]
    fresh = (world.state.rounds == 0)[:, None, None, None]
    return np.where(own, view.free[:, None], np.where(fresh, gossip.free[world.state.episode], NONE))


def _network_choice(
    mode: Mode, rule: PricedRule, net: EdgeNetwork, gossip: _GossipState, world: EdgeWorld, view: EdgeView
) -> Choice:
    """Return the network's choice under a mode."""
    n = view.task.shape[1]
    if mode == "gossip":
        return _choose_with_gossip(rule, net, gossip, world, view)
    believed = _own_room(view) if mode == "none" else priced.shared_room(view)
    if mode != "central":
        return networks.choose_by_network(net, rule, view, believed)
    features = networks.restrict_to_oldest(net, encode(rule, view, believed), view)
    local, task, summary = networks.local_states(net, features)
    states = networks.read_summaries(net, local, summary, features.known), task
    choice = networks.decode_choice(net, rule, view, features, states)
    for turn in range(1, n):  # a centre gives no task to two clusters
        features = _without_taken(features, view, choice, turn)
        again = networks.decode_choice(net, rule, view, features, states)
        slot, cpus, gpus = choice.slot.copy(), choice.cpus.copy(), choice.gpus.copy()
        slot[:, turn], cpus[:, turn], gpus[:, turn] = (
            again.slot[:, turn],
            again.cpus[:, turn],
            again.gpus[:, turn],
        )
        choice = msgspec.structs.replace(choice, slot=slot, cpus=cpus, gpus=gpus)
    return choice


def _without_taken(features: Features, view: EdgeView, choice: Choice, turn: int) -> Features:
    rows = np.arange(len(view.time))
    may = features.may_choose.copy()
    for m in range(turn):
        taken = np.where(choice.slot[:, m] != NONE, view.task[rows, m, choice.slot[:, m]], NONE - 1)
        may[:, turn] &= view.task[:, turn] != taken[:, None]
    return msgspec.structs.replace(features, may_choose=may)


def _choose_with_gossip(
    rule: PricedRule, net: EdgeNetwork, gossip: _GossipState, world: EdgeWorld, view: EdgeView
) -> Choice:
    """Choose with the gossiped room and summaries instead of the present ones."""
    before = networks.local_states(net, encode(rule, view, _gossiped_room(gossip, world, view)))
    gossip.exchange(world, view, lambda: before[2].astype(np.float64))
    features = networks.restrict_to_oldest(net, encode(rule, view, _gossiped_room(gossip, world, view)), view)
    local, task, own_summary = networks.local_states(net, features)
    summaries = gossip.summary[world.state.episode].copy()
    index = np.arange(view.task.shape[1])
    summaries[:, index, index] = own_summary
    states = networks.read_summaries(net, local, summaries, features.known), task
    return networks.decode_choice(net, rule, view, features, states)


def _bytes_sent(mode: Mode, world: EdgeWorld, view: EdgeView) -> float:
    """Return the bytes sent in this round for its decisions, over all live episodes."""
    live, n = world.unfinished, view.task.shape[1]
    if mode == "none":
        return 0.0
    if mode == "gossip":
        steps = float(((world.state.rounds == 0) & live).sum())
        return float(steps * n * (n - 1) * GOSSIP_FLOATS * 4)
    pending = (view.task != NONE).sum(axis=(1, 2)) * _TASK_BYTES
    running = (view.run_task != NONE).sum(axis=(1, 2)) * _RUNNING_BYTES
    each = float(((pending + running + n * _ROOM_BYTES) * live).sum())
    return float(each * (n - 1)) if mode == "full" else each + float(live.sum()) * n * _ANSWER_BYTES
