"""The trained network without torch: the same function in NumPy, small enough to run beside a warden.

Weights come as arrays with the names of the trained layers (``<layer>.weight``, ``<layer>.bias``). The shell
reads the file; this room only computes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from hanse.policy.edge.features import Features, Singles, encode, size_masks
from hanse.policy.edge.guard import without_starvation
from hanse.policy.edge.priced import PricedRule
from hanse.policy.edge.view import NONE, Choice, Flags, Ints, View

FORMAT: Final = 1
"""Version of the exported file; another version is refused."""

MASKED: Final = np.float32(-1e9)


class Network(msgspec.Struct, frozen=True, eq=False):
    """Weights and the few constants of the shape that the arrays do not tell."""

    weights: Mapping[str, Singles]
    heads: int
    encoder: str
    pointer: bool

    def layer(self, name: str, x: Singles) -> Singles:
        """An affine layer over the last axis."""
        return np.asarray(x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"])


class About(msgspec.Struct, frozen=True):
    """The header of an exported file."""

    format: int
    heads: int = 1
    encoder: str = "attention"
    pointer: bool = True
    recipe: dict[str, object] = {}
    measured: dict[str, object] = {}


def from_arrays(arrays: Mapping[str, Singles], about: bytes) -> tuple[Network, About] | str:
    """A network from the arrays of a file and its JSON header, or a sentence saying why it cannot be used.

    The shell reads the file (``numpy.load(path, allow_pickle=False)``; the header is the array ``about``).
    """
    try:
        header = msgspec.json.decode(about, type=About)
    except msgspec.MsgspecError as error:
        return f"the header cannot be read: {error}"
    if header.format != FORMAT:
        return f"it has format {header.format}, this version reads {FORMAT}"
    missing = [name for name in _NEEDED if name + ".weight" not in arrays]
    if missing:
        return f"layers are missing: {', '.join(missing)}"
    return Network(weights=arrays, heads=header.heads, encoder=header.encoder, pointer=header.pointer), header


_NEEDED: Final = ("cluster_in", "task_in", "cpus", "gpus")
"""Layers that every shape of the network has."""


def _relu(x: Singles) -> Singles:
    return np.maximum(x, np.float32(0))


def _softmax(score: Singles, axis: int) -> Singles:
    top = np.exp(score - score.max(axis=axis, keepdims=True))
    return np.asarray(top / top.sum(axis=axis, keepdims=True))


def local_states(net: Network, features: Features) -> tuple[Singles, Singles, Singles]:
    """(B, N, H) own state, (B, N, P, H) task states, and the (B, N, 62) summaries that clusters gossip."""
    task = _relu(net.layer("task_in", features.task))
    own = _relu(net.layer("cluster_in", features.cluster))
    if net.encoder == "none":
        return own, task, np.zeros((*own.shape[:2], 0), dtype=np.float32)
    running = _relu(net.layer("running_in", features.running))
    here, busy = features.task[..., 0] > 0, features.running[..., 0] > 0
    if net.encoder == "mean":
        messages = [_mean(task, here), _mean(running, busy)]
    else:
        query = np.split(net.layer("query", own), 2, axis=-1)
        messages = [
            net.layer("value_task", _attend(net, query[0], task, here)),
            net.layer("value_running", _attend(net, query[1], running, busy)),
        ]
    local = _relu(net.layer("fuse", np.concatenate([own, *messages], axis=-1)))
    return local, task, net.layer("summary", local)


def _mean(values: Singles, there: Flags) -> Singles:
    count = np.maximum(there.sum(axis=2, keepdims=True), 1).astype(np.float32)
    return np.asarray((values * there[..., None]).sum(axis=2) / count)


def _attend(net: Network, query: Singles, token: Singles, there: Flags) -> Singles:
    b, n, _, h = token.shape
    score = query.reshape(b, n, net.heads, h) @ token.swapaxes(2, 3) / np.float32(h**0.5)
    weight = _softmax(np.where(there[:, :, None], score, MASKED), 3) * there[:, :, None]
    return np.asarray((weight @ token).reshape(b, n, net.heads * h))


def heard(net: Network, local: Singles, summary: Singles, known: Flags) -> Singles:
    """(B, N, H) states after reading the summaries each cluster knows.

    ``summary`` is (B, N, N, 62): second axis the reader, third the sender, since what has arrived may differ
    by reader.
    """
    if net.encoder == "none":
        return local
    b, n, _, _ = summary.shape
    h = local.shape[2]
    value = net.layer("shortcut_value", summary).reshape(b, n, n, net.heads, h // net.heads)
    if net.encoder == "mean":
        weight = (known / known.sum(axis=2, keepdims=True))[..., None].astype(np.float32)
    else:
        score = net.layer("shortcut_score", summary)
        weight = _softmax(np.where(known[..., None], score, MASKED), 2)
    message = (weight[..., None] * value).sum(axis=2).reshape(b, n, h)
    return _relu(net.layer("back", np.concatenate([local, message], axis=-1)))


def pointed(net: Network, cluster: Singles, task: Singles, features: Features) -> tuple[Singles, Singles]:
    """(B, N, P+1) masked logits, the last being the pass, and (B, N, P, H) slot states."""
    allowed = features.may_choose
    if "flat_hidden.weight" in net.weights and net.encoder == "none" and _is_flat(net):
        return _pointed_flat(net, features)
    state = _relu(net.layer("head_task", task) + net.layer("head_cluster", cluster)[:, :, None])
    state = _relu(net.layer("head", state))
    near = _mean(state, allowed)
    passing = _relu(net.layer("pass_hidden", np.concatenate([cluster, near], axis=-1)))
    logits = np.where(allowed, net.layer("point", state)[..., 0], MASKED)
    return np.concatenate([logits, net.layer("pass_point", passing)], axis=-1), state


def _is_flat(net: Network) -> bool:
    return int(net.weights["flat_hidden.weight"].shape[1]) > 1


def _pointed_flat(net: Network, features: Features) -> tuple[Singles, Singles]:
    b, n, window, _ = features.task.shape
    raw = np.concatenate([features.cluster, features.task.reshape(b, n, -1)], axis=-1)
    hidden = np.tanh(net.layer("flat_hidden", raw))
    size = _relu(net.layer("flat_size", hidden))
    allowed = np.concatenate([features.may_choose, np.ones((b, n, 1), dtype=np.bool_)], axis=-1)
    logits = np.where(allowed, net.layer("flat_point", hidden), MASKED)
    return logits, np.broadcast_to(size[:, :, None], (b, n, window, size.shape[-1]))


def choose_by_network(net: Network, rule: PricedRule, view: View, believed: Ints) -> Choice:
    """The likeliest choice of every cluster, given the summaries it knows; nobody is left to starve."""
    return choose_from_features(net, rule, view, encode(rule, view, believed))


def choose_from_features(net: Network, rule: PricedRule, view: View, features: Features) -> Choice:
    """The same from features that are already there."""
    features = narrowed(net, features, view)
    local, task, summary = local_states(net, features)
    b, n, width = summary.shape
    everyone = np.broadcast_to(summary[:, None], (b, n, n, width))
    return finish(net, rule, view, features, (heard(net, local, everyone, features.known), task))


def finish(
    net: Network, rule: PricedRule, view: View, features: Features, states: tuple[Singles, Singles]
) -> Choice:
    """From states to choices: point, size, guard."""
    logits, state = pointed(net, states[0], states[1], features)
    window = view.task.shape[2]
    slot = np.argmax(logits, axis=2)
    taken = (slot < window) & features.may_choose.any(axis=2)
    at = np.minimum(slot, window - 1)[..., None]
    chosen = np.take_along_axis(state, at[..., None], axis=2)[:, :, 0]
    kind = np.take_along_axis(view.kind, at, axis=2)[..., 0]
    cpu_mask, gpu_mask = size_masks(rule, kind, view.free)
    cpus = np.argmax(np.where(cpu_mask, net.layer("cpus", chosen), MASKED), axis=2) + 1
    gpus = np.argmax(np.where(gpu_mask, net.layer("gpus", chosen), MASKED), axis=2) + 1
    log = logits - logits.max(axis=2, keepdims=True)
    log = log - np.log(np.exp(log).sum(axis=2, keepdims=True))
    choice = Choice(
        slot=np.where(taken, slot, NONE),
        cpus=np.where(taken, cpus, 0),
        gpus=np.where(taken, gpus, 0),
        preference=np.take_along_axis(log, slot[..., None], axis=2)[..., 0].astype(np.float64),
    )
    return without_starvation(rule, view, choice)


def narrowed(net: Network, features: Features, view: View) -> Features:
    """Without the pointer, only the oldest task that fits may be chosen."""
    if net.pointer:
        return features
    age = np.where(features.may_choose, view.waited, -1)
    oldest = np.argmax(age, axis=2)[..., None] == np.arange(age.shape[2])
    return msgspec.structs.replace(features, may_choose=features.may_choose & oldest)
