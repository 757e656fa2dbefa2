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

from hanse.policy.edge import network as networks
from hanse.policy.edge import priced
from hanse.policy.edge.draws import mixed, uniform
from hanse.policy.edge.features import Features, encode
from hanse.policy.edge.network import Network
from hanse.policy.edge.priced import PricedRule
from hanse.policy.edge.view import NONE, Choice, Flags, Floats, Ints, View
from hanse.sim.edge.play import Outcome, play
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.streams import Streams
from hanse.sim.edge.world import Stepped, World

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


class Link(msgspec.Struct, frozen=True):
    """Delay and loss of gossip."""

    delay_steps: int = 0
    loss: float = 0.0


class Coordinated(msgspec.Struct, frozen=True, eq=False):
    """Result of one way of coordination on some streams."""

    outcome: Outcome
    bytes_per_start: float
    conflicts_per_start: float
    """Choices that lost their task and had to be made again, per started task."""
    compute_ms: float
    """CPU time of one round's decisions of all clusters in one episode, in milliseconds (batched)."""
    trips: int


class _Ears:
    """Last gossip that each cluster has received from each other, for all episodes of the batch."""

    def __init__(self, episodes: int, clusters: int, link: Link) -> None:
        self.link = link
        self.free = np.full((episodes, clusters, clusters, 2), NONE, dtype=np.int64)
        self.summary = np.zeros((episodes, clusters, clusters, GOSSIP_FLOATS - 2), dtype=np.float32)
        depth = link.delay_steps + 1
        self.late = np.full((depth, episodes, clusters, 2), NONE, dtype=np.int64)
        self.late_summary = np.zeros((depth, episodes, clusters, GOSSIP_FLOATS - 2), dtype=np.float32)

    def hear(self, world: World, view: View, summary: Callable[[], Floats | None]) -> None:
        """At the start of a step of time, send gossip and receive what has arrived."""
        fresh = np.flatnonzero((world.state.rounds == 0) & world.live)
        if not len(fresh):
            return
        episode = world.state.episode[fresh]
        said = summary()
        mine = None if said is None else said[fresh].copy()
        key = mixed(world.streams.seed[fresh].astype(np.uint64), np.asarray(_LOSS_KEY) + view.time[fresh])
        n = view.task.shape[1]
        batches = uniform(
            mixed(mixed(key[:, None], np.arange(n)[None])[:, :, None], np.arange(n)[None, None])
        )
        self._take(episode, view.free[fresh].copy(), mine, batches >= self.link.loss)

    def _take(self, episode: Ints, free: Ints, said: Floats | None, arrived: Flags) -> None:
        """Deliver with the delay: what is received now was sent so many steps ago."""
        self.late[1:, episode] = self.late[:-1, episode]
        self.late[0, episode] = free
        if said is not None:
            self.late_summary[1:, episode] = self.late_summary[:-1, episode]
            self.late_summary[0, episode] = said
        old, told = self.late[-1, episode], self.late_summary[-1, episode]
        new = arrived & (old[:, None, :, 0] != NONE)
        self.free[episode] = np.where(new[..., None], old[:, None], self.free[episode])
        self.summary[episode] = np.where(new[..., None], told[:, None], self.summary[episode])


def _own_room(view: View) -> Ints:
    """Return (E, N, N, 2) the room of the cluster itself, and nothing of the others."""
    n = view.task.shape[1]
    own = np.eye(n, dtype=np.bool_)[None, :, :, None]
    return np.where(own, view.free[:, None], NONE)


def coordinate(
    setting: Setting,
    streams: Streams,
    rule: PricedRule,
    mode: Mode,
    network: Network | None = None,
    link: Link | None = None,
) -> Coordinated:
    """Play the streams with the rule, or the network, under one way of coordination."""
    ears = _Ears(len(streams.seed), setting.clusters, link or Link())
    spent = {"seconds": 0.0, "rounds": 0.0, "bytes": 0.0}

    def player(world: World) -> Stepped:
        view = world.view()
        begun = process_time()
        choice = _choice(mode, rule, network, ears, world, view)
        spent["seconds"] += process_time() - begun
        spent["rounds"] += float(world.live.sum())
        spent["bytes"] += _sent(mode, world, view)
        return world.step(choice)

    outcome = play(setting, streams, player)
    starts = outcome.completion.size
    return Coordinated(
        outcome=outcome,
        bytes_per_start=spent["bytes"] / starts,
        conflicts_per_start=float(outcome.conflicts.sum()) / starts,
        compute_ms=1e3 * spent["seconds"] / max(spent["rounds"], 1.0),
        trips=TRIPS[mode],
    )


def _choice(
    mode: Mode, rule: PricedRule, network: Network | None, ears: _Ears, world: World, view: View
) -> Choice:
    """Return the choice under a mode."""
    if network is not None:
        return _network_choice(mode, rule, network, ears, world, view)
    if mode == "central":
        return priced.choose_priced(rule, view)
    if mode == "full":
        return priced.choose_alone(rule, view, priced.shared_room(view))
    if mode == "none":
        return priced.choose_alone(rule, view, _own_room(view))
    ears.hear(world, view, lambda: None)
    return priced.choose_alone(rule, view, _heard_room(ears, world, view))


def _heard_room(ears: _Ears, world: World, view: View) -> Ints:
    """Return the gossiped room, in the round in which it is fresh.

    After that, a task that the others left may be taken.
    """
    own = np.eye(view.task.shape[1], dtype=np.bool_)[None, :, :, None]
    fresh = (world.state.rounds == 0)[:, None, None, None]
    return np.where(own, view.free[:, None], np.where(fresh, ears.free[world.state.episode], NONE))


def _network_choice(
    mode: Mode, rule: PricedRule, net: Network, ears: _Ears, world: World, view: View
) -> Choice:
    """Return the network's choice under a mode."""
    n = view.task.shape[1]
    if mode == "gossip":
        return _network_gossip(rule, net, ears, world, view)
    believed = _own_room(view) if mode == "none" else priced.shared_room(view)
    if mode != "central":
        return networks.choose_by_network(net, rule, view, believed)
    features = networks.narrowed(net, encode(rule, view, believed), view)
    local, task, summary = networks.local_states(net, features)
    states = networks.heard(net, local, summary, features.known), task
    choice = networks.finish(net, rule, view, features, states)
    for turn in range(1, n):  # a centre gives no task to two clusters
        features = _without_taken(features, view, choice, turn)
        again = networks.finish(net, rule, view, features, states)
        slot, cpus, gpus = choice.slot.copy(), choice.cpus.copy(), choice.gpus.copy()
        slot[:, turn], cpus[:, turn], gpus[:, turn] = (
            again.slot[:, turn],
            again.cpus[:, turn],
            again.gpus[:, turn],
        )
        choice = msgspec.structs.replace(choice, slot=slot, cpus=cpus, gpus=gpus)
    return choice


def _without_taken(features: Features, view: View, choice: Choice, turn: int) -> Features:
    rows = np.arange(len(view.time))
    may = features.may_choose.copy()
    for m in range(turn):
        taken = np.where(choice.slot[:, m] != NONE, view.task[rows, m, choice.slot[:, m]], NONE - 1)
        may[:, turn] &= view.task[:, turn] != taken[:, None]
    return msgspec.structs.replace(features, may_choose=may)


def _network_gossip(rule: PricedRule, net: Network, ears: _Ears, world: World, view: View) -> Choice:
    """Choose with the gossiped room and summaries instead of the present ones."""
    before = networks.local_states(net, encode(rule, view, _heard_room(ears, world, view)))
    ears.hear(world, view, lambda: before[2].astype(np.float64))
    features = networks.narrowed(net, encode(rule, view, _heard_room(ears, world, view)), view)
    local, task, mine = networks.local_states(net, features)
    heard = ears.summary[world.state.episode].copy()
    index = np.arange(view.task.shape[1])
    heard[:, index, index] = mine
    states = networks.heard(net, local, heard, features.known), task
    return networks.finish(net, rule, view, features, states)


def _sent(mode: Mode, world: World, view: View) -> float:
    """Return the bytes sent in this round for its decisions, over all live episodes."""
    live, n = world.live, view.task.shape[1]
    if mode == "none":
        return 0.0
    if mode == "gossip":
        steps = float(((world.state.rounds == 0) & live).sum())
        return float(steps * n * (n - 1) * GOSSIP_FLOATS * 4)
    pending = (view.task != NONE).sum(axis=(1, 2)) * _TASK_BYTES
    running = (view.run_task != NONE).sum(axis=(1, 2)) * _RUNNING_BYTES
    each = float(((pending + running + n * _ROOM_BYTES) * live).sum())
    return float(each * (n - 1)) if mode == "full" else each + float(live.sum()) * n * _ANSWER_BYTES
