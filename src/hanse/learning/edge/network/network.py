"""Trained network without torch: the same function in NumPy, small enough to run beside a warden.

Weights come as arrays with the names of the trained layers (``<layer>.weight``, ``<layer>.bias``). The shell
reads the file; this package only computes. For one state the number of calls decides the time, so layers
without a rectifier in between are multiplied together once, when the file is read.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Ints
from hanse.learning.edge.network.features import RULE_PICK_COLUMN, Features, encode, size_masks
from hanse.learning.edge.policies.feature_table import RULE_CPUS_COLUMN, RULE_GPUS_COLUMN, SIZES_MAX, Singles
from hanse.learning.edge.policies.guard import without_starvation
from hanse.learning.edge.policies.priced import PricedRule

FORMAT: Final = 2
"""Version of the exported file; another version is refused."""

SUMMARY: Final = 62
"""Floats of a cluster's summary; without an encoder they are all 0."""

MASKED: Final = np.float32(-1e9)
_ZERO: Final = np.float32(0)
_SIZES: Final = np.arange(1, SIZES_MAX + 1, dtype=np.float32)


class EdgeNetwork(msgspec.Struct, frozen=True, eq=False):
    """Weights, and the constants of the shape that the arrays do not show."""

    weights: Mapping[str, Singles]
    """Layers as trained."""
    fused: Mapping[str, Singles]
    """Layers as computed: ``<name>`` (inputs, outputs) and ``<name>.bias``; see :func:`_fuse_layers`."""
    heads: int
    encoder: str
    pointer: bool
    flat: bool

    def layer(self, name: str, x: Singles) -> Singles:
        """Apply an affine layer to the last axis."""
        y = x @ self.fused[name]
        y += self.fused[name + ".bias"]
        return y

    def relu_layer(self, name: str, x: Singles) -> Singles:
        """Apply an affine layer and a rectifier."""
        y = self.layer(name, x)
        return np.maximum(y, _ZERO, out=y)


class NetworkHeader(msgspec.Struct, frozen=True):
    """Header of an exported file."""

    format: int
    heads: int = 1
    encoder: str = "attention"
    pointer: bool = True
    flat: bool = False
    recipe: dict[str, object] = {}
    measured: dict[str, object] = {}


def from_arrays(arrays: Mapping[str, Singles], about: bytes) -> tuple[EdgeNetwork, NetworkHeader] | str:
    """Return a network from a file's arrays and JSON header, or a sentence why it cannot be used.

    The shell reads the file (``numpy.load(path, allow_pickle=False)``; the header is the array ``about``).
    """
    try:
        header = msgspec.json.decode(about, type=NetworkHeader)
    except msgspec.MsgspecError as error:
        return f"the header cannot be read: {error}"
    if header.format != FORMAT:
        return f"it has format {header.format}, this version reads {FORMAT}"
    missing = [name for name in _required_arrays(header) if name not in arrays]
    if missing:
        return f"layers are missing: {', '.join(missing)}"
    fused = _fuse_layers(arrays, header)
    return EdgeNetwork(arrays, fused, header.heads, header.encoder, header.pointer, header.flat), header


def _required_arrays(header: NetworkHeader) -> list[str]:
    """Return the names of the arrays that a network of this shape has."""
    names = ["cluster_in", "task_in", "cpus", "gpus"]
    names += ["flat_hidden", "flat_point", "flat_size"] if header.flat else list(_POINTER)
    if header.encoder != "none":
        names += _ENCODER
    if header.encoder == "attention":
        names += _ATTENTION
    return [f"{name}.{part}" for name in names for part in ("weight", "bias")] + ["lean"]


_POINTER: Final = ("head_task", "head_cluster", "head", "point", "pass_hidden", "pass_point")
_ENCODER: Final = ("running_in", "fuse", "summary", "shortcut_value", "back")
_ATTENTION: Final = ("query", "value_task", "value_running", "shortcut_score")


def _fuse_layers(arrays: Mapping[str, Singles], header: NetworkHeader) -> dict[str, Singles]:
    """Return weights with inputs first; layers without a rectifier in between are multiplied together.

    ``query`` is scaled by the root of its width. ``fuse`` takes the gathered tokens themselves, the value
    layers being part of it. ``read`` makes the shortcut's values and scores from summaries. ``sizes`` is both
    size heads side by side.
    """
    fused: dict[str, Singles] = {}
    for name in arrays:
        layer, _, part = name.rpartition(".")
        if part == "weight":
            fused[layer] = np.ascontiguousarray(arrays[name].T)
            fused[layer + ".bias"] = arrays[layer + ".bias"]
    hidden = fused["cluster_in"].shape[1]
    for part in ("", ".bias"):
        fused["sizes" + part] = np.concatenate([fused["cpus" + part], fused["gpus" + part]], axis=-1)
    if header.encoder == "none":
        return fused
    fused["read"], fused["read.bias"] = fused["shortcut_value"], fused["shortcut_value.bias"]
    if header.encoder == "attention":
        for part in ("", ".bias"):
            fused["query" + part] = fused["query" + part] / np.float32(hidden**0.5)
            fused["read" + part] = np.concatenate(
                [fused["read" + part], fused["shortcut_score" + part]], axis=-1
            )
        own, task, running = (fused["fuse"][i * hidden : (i + 1) * hidden] for i in range(3))
        bias = fused["fuse.bias"] + fused["value_task.bias"] @ task + fused["value_running.bias"] @ running
        fused["fuse"] = np.concatenate([own, fused["value_task"] @ task, fused["value_running"] @ running])
        fused["fuse.bias"] = bias
    return fused


def local_states(net: EdgeNetwork, features: Features) -> tuple[Singles, Singles, Singles]:
    """Return own states (B, N, H), task states (B, N, P, H), and gossiped summaries (B, N, 62)."""
    task = net.relu_layer("task_in", features.task)
    own = net.relu_layer("cluster_in", features.cluster)
    if net.encoder == "none":
        return own, task, np.zeros((*own.shape[:2], SUMMARY), dtype=np.float32)
    running = net.relu_layer("running_in", features.running)
    here, busy = features.task[..., 0], features.running[..., 0]
    if net.encoder == "mean":
        messages = [_mean(task, here), _mean(running, busy)]
    else:
        b, n, h = own.shape
        query = net.layer("query", own).reshape(b, n, 2 * net.heads, h)
        messages = [
            _attend(query[:, :, : net.heads], task, here),
            _attend(query[:, :, net.heads :], running, busy),
        ]
    local = net.relu_layer("fuse", np.concatenate([own, *messages], axis=-1))
    return local, task, net.layer("summary", local)


def _mean(values: Singles, there: Singles) -> Singles:
    """Return the mean over the third axis where ``there`` is 1, else 0; zero over nothing."""
    count = np.maximum(there.sum(axis=2, keepdims=True), np.float32(1))
    return np.asarray((there[:, :, None] @ values)[:, :, 0] / count)


def _attend(query: Singles, token: Singles, there: Singles) -> Singles:
    """Return what the heads of each cluster gather from its tokens: (B, N, heads * H); zero over nothing."""
    score = query @ token.swapaxes(2, 3)
    score -= score.max(axis=3, keepdims=True)  # subtracting the largest does not change the share
    np.exp(score, out=score)
    score *= there[:, :, None]
    score /= np.maximum(score.sum(axis=3, keepdims=True), _TINY)
    gathered = np.asarray(score @ token, dtype=np.float32)
    return gathered.reshape(*gathered.shape[:2], -1)


_TINY: Final = np.float32(1e-30)


def read_summaries(net: EdgeNetwork, local: Singles, summary: Singles, known: Flags) -> Singles:
    """Return (B, N, H) states after reading the summaries each cluster knows.

    ``summary`` is (B, N, 62) where every reader got the same, or (B, N, N, 62), second axis the reader, third
    the sender, where what has arrived differs by reader.
    """
    if net.encoder == "none":
        return local
    b, n, h = local.shape
    shared = net.layer("read", summary)
    if summary.ndim == 3:
        shared = shared[:, None]
    value = shared[..., :h].reshape(b, -1, n, net.heads, h // net.heads).swapaxes(2, 3)
    if net.encoder == "mean":
        weight = (known / known.sum(axis=2, keepdims=True)).astype(np.float32)[:, :, None]
    else:
        score = np.where(known[:, :, None], shared[..., h:].swapaxes(2, 3), MASKED)
        score -= score.max(axis=3, keepdims=True)
        weight = np.exp(score, out=score)
        weight /= weight.sum(axis=3, keepdims=True)
    message = (weight[:, :, :, None] @ value).reshape(b, n, h)
    return net.relu_layer("back", np.concatenate([local, message], axis=-1))


def pointer_logits(
    net: EdgeNetwork, cluster: Singles, task: Singles, features: Features
) -> tuple[Singles, Singles]:
    """Return (B, N, P+1) masked logits, the last being the pass, and (B, N, P, H) slot states."""
    allowed = features.may_choose
    if net.flat:
        return _flat_pointer_logits(net, features)
    state = net.layer("head_task", task)
    state += net.layer("head_cluster", cluster)[:, :, None]
    state = net.relu_layer("head", np.maximum(state, _ZERO, out=state))
    near = _mean(state, allowed.astype(np.float32))
    passing = net.relu_layer("pass_hidden", np.concatenate([cluster, near], axis=-1))
    logits = np.empty((*allowed.shape[:2], allowed.shape[2] + 1), dtype=np.float32)
    logits[..., :-1] = np.where(allowed, net.layer("point", state)[..., 0], MASKED)
    logits[..., -1:] = net.layer("pass_point", passing)
    logits += _rule_pick_logits(net, features)
    return logits, state


def _rule_pick_logits(net: EdgeNetwork, features: Features) -> Singles:
    """Return (B, N, P+1) what the rule's own pick, or its pass, adds to that logit."""
    rules = features.task[..., RULE_PICK_COLUMN] * features.may_choose
    lean = net.weights["lean"]
    out = np.empty((*rules.shape[:2], rules.shape[2] + 1), dtype=np.float32)
    np.multiply(rules, lean[2], out=out[..., :-1])
    out[..., -1] = (np.float32(1) - rules.sum(axis=2)) * lean[3]
    return out


def _flat_pointer_logits(net: EdgeNetwork, features: Features) -> tuple[Singles, Singles]:
    b, n, window, _ = features.task.shape
    raw = np.concatenate([features.cluster, features.task.reshape(b, n, -1)], axis=-1)
    hidden = np.tanh(net.layer("flat_hidden", raw))
    size = net.relu_layer("flat_size", hidden)
    allowed = np.concatenate([features.may_choose, np.ones((b, n, 1), dtype=np.bool_)], axis=-1)
    logits = np.where(allowed, net.layer("flat_point", hidden) + _rule_pick_logits(net, features), MASKED)
    return logits, np.broadcast_to(size[:, :, None], (b, n, window, size.shape[-1]))


def choose_by_network(net: EdgeNetwork, rule: PricedRule, view: EdgeView, believed: Ints) -> Choice:
    """Return the likeliest choice of every cluster, given the summaries it knows; no task starves."""
    return choose_from_features(net, rule, view, encode(rule, view, believed))


def choose_from_features(net: EdgeNetwork, rule: PricedRule, view: EdgeView, features: Features) -> Choice:
    """Choose as ``choose_by_network`` does, from features that are already there."""
    features = restrict_to_oldest(net, features, view)
    local, task, summary = local_states(net, features)
    return decode_choice(
        net, rule, view, features, (read_summaries(net, local, summary, features.known), task)
    )


def decode_choice(
    net: EdgeNetwork, rule: PricedRule, view: EdgeView, features: Features, states: tuple[Singles, Singles]
) -> Choice:
    """Turn states into choices: pointer, size, guard."""
    logits, state = pointer_logits(net, states[0], states[1], features)
    b, n, window = view.task.shape
    slot = logits.argmax(axis=2)
    taken = (slot < window) & features.may_choose.any(axis=2)
    at = np.minimum(slot, window - 1) + np.arange(b * n).reshape(b, n) * window
    sizes = net.layer("sizes", state.reshape(b * n * window, -1).take(at, axis=0))
    raw = features.task.reshape(b * n * window, -1).take(at, axis=0)
    masks = size_masks(rule, view.kind.ravel().take(at), view.free)
    lean = net.weights["lean"]
    size = [
        _likeliest_size(sizes[..., :SIZES_MAX], raw[..., RULE_CPUS_COLUMN], lean[0], masks[0]),
        _likeliest_size(sizes[..., SIZES_MAX:], raw[..., RULE_GPUS_COLUMN], lean[1], masks[1]),
    ]
    chosen = logits.max(axis=2)
    total = np.exp(logits - chosen[..., None]).sum(axis=2)
    choice = Choice(
        slot=np.where(taken, slot, NONE),
        cpus=size[0] * taken,
        gpus=size[1] * taken,
        preference=-np.log(total).astype(np.float64),
    )
    return without_starvation(rule, view, choice)


def _likeliest_size(logits: Singles, shown: Singles, lean: np.float32, mask: Flags) -> Ints:
    """Return the likeliest size (1 to 16) within the mask, biased towards the rule's size ``shown``."""
    leaned = logits + lean * np.abs(shown[..., None] * np.float32(SIZES_MAX) - _SIZES)
    return np.asarray(np.where(mask, leaned, MASKED).argmax(axis=-1) + 1)


def restrict_to_oldest(net: EdgeNetwork, features: Features, view: EdgeView) -> Features:
    """Without the pointer, allow only the oldest task that fits."""
    if net.pointer:
        return features
    age = np.where(features.may_choose, view.waited, -1)
    oldest = np.argmax(age, axis=2)[..., None] == np.arange(age.shape[2])
    return msgspec.structs.replace(features, may_choose=features.may_choose & oldest)
