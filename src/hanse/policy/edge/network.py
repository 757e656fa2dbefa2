"""Trained network without torch: the same function in NumPy, small enough to run beside a warden.

Weights come as arrays with the names of the trained layers (``<layer>.weight``, ``<layer>.bias``). The shell
reads the file; this package only computes. For one state the number of calls decides the time, so layers
without a rectifier in between are multiplied together once, when the file is read.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from hanse.policy.edge.features import PICK_SHOWN, Features, encode, size_masks
from hanse.policy.edge.guard import without_starvation
from hanse.policy.edge.priced import PricedRule
from hanse.policy.edge.shown import CPUS_SHOWN, GPUS_SHOWN, SIZES_MAX, Singles
from hanse.policy.edge.view import NONE, Choice, Flags, Ints, View

FORMAT: Final = 2
"""Version of the exported file; another version is refused."""

SUMMARY: Final = 62
"""Floats of a cluster's summary; without an encoder they are all 0."""

MASKED: Final = np.float32(-1e9)
_ZERO: Final = np.float32(0)
_SIZES: Final = np.arange(1, SIZES_MAX + 1, dtype=np.float32)


class Network(msgspec.Struct, frozen=True, eq=False):
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

    def bent(self, name: str, x: Singles) -> Singles:
        """Apply an affine layer and a rectifier."""
        y = self.layer(name, x)
        return np.maximum(y, _ZERO, out=y)


class About(msgspec.Struct, frozen=True):
    """Header of an exported file."""

    format: int
    heads: int = 1
    encoder: str = "attention"
    pointer: bool = True
    flat: bool = False
    recipe: dict[str, object] = {}
    measured: dict[str, object] = {}


def from_arrays(arrays: Mapping[str, Singles], about: bytes) -> tuple[Network, About] | str:
    """Return a network from a file's arrays and JSON header, or a sentence why it cannot be used.

    The shell reads the file (``numpy.load(path, allow_pickle=False)``; the header is the array ``about``).
    """
    try:
        header = msgspec.json.decode(about, type=About)
    except msgspec.MsgspecError as error:
        return f"the header cannot be read: {error}"
    if header.format != FORMAT:
        return f"it has format {header.format}, this version reads {FORMAT}"
    missing = [name for name in _needed(header) if name not in arrays]
    if missing:
        return f"layers are missing: {', '.join(missing)}"
    fused = _fused(arrays, header)
    return Network(arrays, fused, header.heads, header.encoder, header.pointer, header.flat), header


def _needed(header: About) -> list[str]:
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


def _fused(arrays: Mapping[str, Singles], header: About) -> dict[str, Singles]:
    """Return weights with inputs first; layers without a rectifier in between are multiplied together.

    ``query`` is scaled by the root of its width. ``fuse`` takes the gathered tokens themselves, the value
    layers being part of it. ``read`` makes the shortcut's values and scores from summaries. ``sizes`` is both
    size heads side by side.
    """
    out: dict[str, Singles] = {}
    for name in arrays:
        layer, _, part = name.rpartition(".")
        if part == "weight":
            out[layer] = np.ascontiguousarray(arrays[name].T)
            out[layer + ".bias"] = arrays[layer + ".bias"]
    hidden = out["cluster_in"].shape[1]
    for part in ("", ".bias"):
        out["sizes" + part] = np.concatenate([out["cpus" + part], out["gpus" + part]], axis=-1)
    if header.encoder == "none":
        return out
    out["read"], out["read.bias"] = out["shortcut_value"], out["shortcut_value.bias"]
    if header.encoder == "attention":
        for part in ("", ".bias"):
            out["query" + part] = out["query" + part] / np.float32(hidden**0.5)
            out["read" + part] = np.concatenate([out["read" + part], out["shortcut_score" + part]], axis=-1)
        own, task, running = (out["fuse"][i * hidden : (i + 1) * hidden] for i in range(3))
        bias = out["fuse.bias"] + out["value_task.bias"] @ task + out["value_running.bias"] @ running
        out["fuse"] = np.concatenate([own, out["value_task"] @ task, out["value_running"] @ running])
        out["fuse.bias"] = bias
    return out


def local_states(net: Network, features: Features) -> tuple[Singles, Singles, Singles]:
    """Return own states (B, N, H), task states (B, N, P, H), and gossiped summaries (B, N, 62)."""
    task = net.bent("task_in", features.task)
    own = net.bent("cluster_in", features.cluster)
    if net.encoder == "none":
        return own, task, np.zeros((*own.shape[:2], SUMMARY), dtype=np.float32)
    running = net.bent("running_in", features.running)
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
    local = net.bent("fuse", np.concatenate([own, *messages], axis=-1))
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


def heard(net: Network, local: Singles, summary: Singles, known: Flags) -> Singles:
    """Return (B, N, H) states after reading the summaries each cluster knows.

    ``summary`` is (B, N, 62) where every reader got the same, or (B, N, N, 62), second axis the reader, third
    the sender, where what has arrived differs by reader.
    """
    if net.encoder == "none":
        return local
    b, n, h = local.shape
    told = net.layer("read", summary)
    if summary.ndim == 3:
        told = told[:, None]
    value = told[..., :h].reshape(b, -1, n, net.heads, h // net.heads).swapaxes(2, 3)
    if net.encoder == "mean":
        weight = (known / known.sum(axis=2, keepdims=True)).astype(np.float32)[:, :, None]
    else:
        score = np.where(known[:, :, None], told[..., h:].swapaxes(2, 3), MASKED)
        score -= score.max(axis=3, keepdims=True)
        weight = np.exp(score, out=score)
        weight /= weight.sum(axis=3, keepdims=True)
    message = (weight[:, :, :, None] @ value).reshape(b, n, h)
    return net.bent("back", np.concatenate([local, message], axis=-1))


def pointed(net: Network, cluster: Singles, task: Singles, features: Features) -> tuple[Singles, Singles]:
    """Return (B, N, P+1) masked logits, the last being the pass, and (B, N, P, H) slot states."""
    allowed = features.may_choose
    if net.flat:
        return _pointed_flat(net, features)
    state = net.layer("head_task", task)
    state += net.layer("head_cluster", cluster)[:, :, None]
    state = net.bent("head", np.maximum(state, _ZERO, out=state))
    near = _mean(state, allowed.astype(np.float32))
    passing = net.bent("pass_hidden", np.concatenate([cluster, near], axis=-1))
    logits = np.empty((*allowed.shape[:2], allowed.shape[2] + 1), dtype=np.float32)
    logits[..., :-1] = np.where(allowed, net.layer("point", state)[..., 0], MASKED)
    logits[..., -1:] = net.layer("pass_point", passing)
    logits += _picking(net, features)
    return logits, state


def _picking(net: Network, features: Features) -> Singles:
    """Return (B, N, P+1) what the rule's own pick, or its pass, adds to that logit."""
    rules = features.task[..., PICK_SHOWN] * features.may_choose
    lean = net.weights["lean"]
    out = np.empty((*rules.shape[:2], rules.shape[2] + 1), dtype=np.float32)
    np.multiply(rules, lean[2], out=out[..., :-1])
    out[..., -1] = (np.float32(1) - rules.sum(axis=2)) * lean[3]
    return out


def _pointed_flat(net: Network, features: Features) -> tuple[Singles, Singles]:
    b, n, window, _ = features.task.shape
    raw = np.concatenate([features.cluster, features.task.reshape(b, n, -1)], axis=-1)
    hidden = np.tanh(net.layer("flat_hidden", raw))
    size = net.bent("flat_size", hidden)
    allowed = np.concatenate([features.may_choose, np.ones((b, n, 1), dtype=np.bool_)], axis=-1)
    logits = np.where(allowed, net.layer("flat_point", hidden) + _picking(net, features), MASKED)
    return logits, np.broadcast_to(size[:, :, None], (b, n, window, size.shape[-1]))


def choose_by_network(net: Network, rule: PricedRule, view: View, believed: Ints) -> Choice:
    """Return the likeliest choice of every cluster, given the summaries it knows; no task starves."""
    return choose_from_features(net, rule, view, encode(rule, view, believed))


def choose_from_features(net: Network, rule: PricedRule, view: View, features: Features) -> Choice:
    """Choose as ``choose_by_network`` does, from features that are already there."""
    features = narrowed(net, features, view)
    local, task, summary = local_states(net, features)
    return finish(net, rule, view, features, (heard(net, local, summary, features.known), task))


def finish(
    net: Network, rule: PricedRule, view: View, features: Features, states: tuple[Singles, Singles]
) -> Choice:
    """Turn states into choices: pointer, size, guard."""
    logits, state = pointed(net, states[0], states[1], features)
    b, n, window = view.task.shape
    slot = logits.argmax(axis=2)
    taken = (slot < window) & features.may_choose.any(axis=2)
    at = np.minimum(slot, window - 1) + np.arange(b * n).reshape(b, n) * window
    sizes = net.layer("sizes", state.reshape(b * n * window, -1).take(at, axis=0))
    raw = features.task.reshape(b * n * window, -1).take(at, axis=0)
    masks = size_masks(rule, view.kind.ravel().take(at), view.free)
    lean = net.weights["lean"]
    size = [
        _likeliest(sizes[..., :SIZES_MAX], raw[..., CPUS_SHOWN], lean[0], masks[0]),
        _likeliest(sizes[..., SIZES_MAX:], raw[..., GPUS_SHOWN], lean[1], masks[1]),
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


def _likeliest(logits: Singles, shown: Singles, lean: np.float32, mask: Flags) -> Ints:
    """Return the likeliest size (1 to 16) within the mask, biased towards the rule's size ``shown``."""
    leaned = logits + lean * np.abs(shown[..., None] * np.float32(SIZES_MAX) - _SIZES)
    return np.asarray(np.where(mask, leaned, MASKED).argmax(axis=-1) + 1)


def narrowed(net: Network, features: Features, view: View) -> Features:
    """Without the pointer, allow only the oldest task that fits."""
    if net.pointer:
        return features
    age = np.where(features.may_choose, view.waited, -1)
    oldest = np.argmax(age, axis=2)[..., None] == np.arange(age.shape[2])
    return msgspec.structs.replace(features, may_choose=features.may_choose & oldest)
