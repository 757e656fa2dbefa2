"""Network in torch: a heterogeneous attention encoder with a shortcut node, a pointer and two size heads.

Node types are clusters, their pending tasks, their running tasks and one shortcut node. A cluster attends to
its pending and to its running tasks (node-level attention, one set of weights per relation), the two messages
are fused with its own state (semantic level), and a summary of 62 numbers goes to the shortcut node, which
every cluster reads back. All weights are shared by all clusters, so their number is free. With two numbers of
free room a summary is 64 floats: what clusters gossip.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import torch
from torch import Tensor, nn

from hanse.learning.edge.network.features import (
    CLUSTER_FEATURES,
    RULE_PICK_COLUMN,
    RUNNING_FEATURES,
    TASK_FEATURES,
)
from hanse.learning.edge.policies.feature_table import (
    RULE_CPUS_COLUMN,
    RULE_GPUS_COLUMN,
    SIZES_MAX,
    TABLE_FEATURES,
)

SUMMARY: Final = 62
"""Floats of a cluster's summary; its free CPUs and GPUs make it 64."""

MASKED: Final = -1e9

RULE_COLUMNS: Final = (TABLE_FEATURES - 1, RULE_PICK_COLUMN)
"""Columns of a task's features that show the rule's answer: its duration, and its pick."""

RuleLean = tuple[float, float, float, float]
"""Terms added to the logits: per CPU and GPU away from the rule's size, for its slot and its pass."""

NO_LEAN: Final[RuleLean] = (0.0, 0.0, 0.0, 0.0)
CPU_LEAN: Final[RuleLean] = (-20.0, 0.0, 0.0, 0.0)
"""CPUs are the rule's: in training they hardly matter, and where they do, they were not learned."""
SIZE_LEAN: Final[RuleLean] = (-20.0, -20.0, 0.0, 0.0)
"""Sizes are the rule's: one GPU too few can cost a task a whole step, and imitation may miss by one."""
FULL_LEAN: Final[RuleLean] = (-1.5, -1.5, 3.0, 3.0)
"""Likeliest answer of the untrained network is the rule's; sizes near the rule's are tried most."""


class NetConfig(msgspec.Struct, frozen=True):
    """Shape of the network and the ablations of source 002."""

    hidden: int = 64
    heads: int = 2
    encoder: Literal["attention", "mean", "none"] = "attention"
    """``mean``: plain averages instead of attention. ``none``: a cluster sees itself and each task alone."""
    pointer: bool = True
    """False: the task is the oldest that fits, and only the pass and the size are learned."""
    flat: bool = False
    """True: no shared scorer at all, one perceptron over all slots at once (vanilla MARL)."""
    window: int = 10
    """Pending slots; only the flat network depends on it."""
    told: bool = False
    """True: the network sees the rule's own pick. Imitation is then quick and holds on clusters never seen,
    but it settles on the rule alone, and forty more iterations did not improve on it."""
    lean: RuleLean = SIZE_LEAN
    """Bias of the network towards the rule; biased layers have zero weights before training."""


class FeatureBatch(msgspec.Struct, frozen=True, eq=False):
    """Features as tensors; shapes as in :class:`hanse.learning.edge.network.features.Features`."""

    cluster: Tensor
    task: Tensor
    running: Tensor
    may_choose: Tensor
    known: Tensor


class Tokens(msgspec.Struct, frozen=True, eq=False):
    """Pending (or running) tasks, packed: most slots are empty, and computing costs time."""

    state: Tensor
    """(T, H)."""
    owner: Tensor
    """(T,) cluster of the task: row * N + column."""
    place: Tensor
    """(T,) slot of the task, counted over the whole batch."""


class PointerOutput(msgspec.Struct, frozen=True, eq=False):
    """Output of the pointer for D deciders."""

    logits: Tensor
    """(D, P+1), masked; the last is the pass."""
    state: Tensor
    """(M, H) states of the slots that may be chosen."""
    index: Tensor
    """(D, P) row of ``state`` of each slot; 0 where it may not be chosen."""

    def slot_states(self, decider: Tensor, slot: Tensor) -> Tensor:
        """Return the states of some deciders' slots."""
        return self.state.index_select(0, self.index[decider, slot])


class EdgeNet(nn.Module):
    """Pointer logits over pending slots and a pass, and size logits for a chosen slot."""

    def __init__(self, config: NetConfig) -> None:
        """Make the layers; names are those of the exported file."""
        super().__init__()
        h = config.hidden
        self.config = config
        self.cluster_in = nn.Linear(CLUSTER_FEATURES, h)
        self.task_in = nn.Linear(TASK_FEATURES, h)
        self.running_in = nn.Linear(RUNNING_FEATURES, h)
        self.query = nn.Linear(h, 2 * config.heads * h)
        self.value_task = nn.Linear(config.heads * h, h)
        self.value_running = nn.Linear(config.heads * h, h)
        self.fuse = nn.Linear(3 * h, h)
        self.summary = nn.Linear(h, SUMMARY)
        self.shortcut_score = nn.Linear(SUMMARY, config.heads)
        self.shortcut_value = nn.Linear(SUMMARY, h)
        self.back = nn.Linear(2 * h, h)
        self.head_task = nn.Linear(h, h)
        self.head_cluster = nn.Linear(h, h)
        self.head = nn.Linear(h, h)
        self.point = nn.Linear(h, 1)
        self.pass_hidden = nn.Linear(2 * h, h)
        self.pass_point = nn.Linear(h, 1)
        self.gpus = nn.Linear(h, SIZES_MAX)
        self.cpus = nn.Linear(h, SIZES_MAX)
        self.lean: Tensor
        self.register_buffer("lean", torch.tensor(config.lean))
        self.uses_rule_sizes = max(config.lean[:2]) <= min(SIZE_LEAN)
        """True if sizes are the rule's: then none need be drawn or recorded."""
        flat_inputs = CLUSTER_FEATURES + config.window * TASK_FEATURES
        self.flat_hidden = nn.Linear(flat_inputs if config.flat else 1, 2 * h)
        self.flat_point = nn.Linear(2 * h, config.window + 1)
        self.flat_size = nn.Linear(2 * h, h)
        leaning_layers = ((self.cpus,), (self.gpus,), (self.point, self.flat_point), (self.pass_point,))
        for layers, slope in zip(leaning_layers, config.lean, strict=True):
            for layer in layers if slope else ():  # zero at first: only the rule's answer remains
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        if not config.told:
            slots = range(CLUSTER_FEATURES, flat_inputs, TASK_FEATURES) if config.flat else ()
            _zero_inputs(self.task_in, RULE_COLUMNS)
            _zero_inputs(self.flat_hidden, [first + column for first in slots for column in RULE_COLUMNS])

    def states(self, batch: FeatureBatch) -> tuple[Tensor, Tokens]:
        """Return (B, N, H) cluster states after messages, and their pending tasks' states before them."""
        task = pack_tokens(self.task_in, batch.task)
        own = torch.relu(self.cluster_in(batch.cluster))
        if self.config.encoder == "none":
            return own, task
        local = self.local_states(own, task, pack_tokens(self.running_in, batch.running))
        return self.read_summaries(local, self.summary(local), batch.known), task

    def local_states(self, own: Tensor, task: Tokens, running: Tokens) -> Tensor:
        """Return (B, N, H) cluster states after messages of their own tasks."""
        b, n, h = own.shape
        if self.config.encoder == "mean":
            messages = [_mean(task, b * n), _mean(running, b * n)]
        else:
            query = self.query(own).view(b * n, 2, self.config.heads, h)
            messages = [
                self.value_task(attend(query[:, 0], task)),
                self.value_running(attend(query[:, 1], running)),
            ]
        parts = [own, *(message.view(b, n, h) for message in messages)]
        return torch.relu(self.fuse(torch.cat(parts, dim=-1)))

    def read_summaries(self, local: Tensor, summary: Tensor, known: Tensor) -> Tensor:
        """Return (B, N, H) cluster states after the shortcut node, with the summaries each cluster knows."""
        b, n, _ = summary.shape
        heads, size = self.config.heads, self.config.hidden // self.config.heads
        value = self.shortcut_value(summary).view(b, n, heads, size).transpose(1, 2)
        if self.config.encoder == "mean":
            share = known.float() / known.float().sum(dim=2, keepdim=True)
            weight = share[:, None].expand(b, heads, n, n)
        else:
            score = self.shortcut_score(summary).transpose(1, 2)[:, :, None]
            weight = torch.softmax(score.masked_fill(~known[:, None], MASKED), dim=3)
        message = (weight @ value).transpose(1, 2).reshape(b, n, heads * size)
        return torch.relu(self.back(torch.cat([local, message], dim=-1)))

    def pointer_logits(
        self, cluster: Tensor, task: Tokens, raw: Tensor, allowed: Tensor, rules: Tensor, owner: Tensor
    ) -> PointerOutput:
        """Return the pointer's output for D deciders.

        ``cluster`` (D, H), ``raw`` (D, CLUSTER_FEATURES + P * TASK_FEATURES), ``allowed`` (D, P), ``rules``
        (D, P) 1 for the rule's own pick, ``owner`` (D,) the decider's cluster as the tokens name it.
        """
        d, window = allowed.shape
        if self.config.flat:
            hidden = torch.tanh(self.flat_hidden(raw))
            open_ = torch.cat([allowed, torch.ones_like(allowed[:, :1])], dim=1)
            index = torch.arange(d)[:, None].expand(d, window)
            logits = (self.flat_point(hidden) + self.rule_pick_logits(rules * allowed)).masked_fill(
                ~open_, MASKED
            )
            return PointerOutput(logits=logits, state=torch.relu(self.flat_size(hidden)), index=index)
        who, slot = torch.nonzero(allowed, as_tuple=True)
        at = torch.searchsorted(task.place, owner[who] * window + slot)
        # index_select, not state[at]: its gradient is several times cheaper
        chosen, deciding = task.state.index_select(0, at), self.head_cluster(cluster).index_select(0, who)
        state = torch.relu(self.head_task(chosen) + deciding)
        state = torch.relu(self.head(state))
        count = allowed.sum(dim=1, keepdim=True).clamp(min=1)
        near = torch.zeros(d, state.shape[1]).index_add(0, who, state) / count
        passing = torch.relu(self.pass_hidden(torch.cat([cluster, near], dim=-1)))
        logits = torch.full((d, window), MASKED).index_put((who, slot), self.point(state)[:, 0])
        index = torch.zeros(d, window, dtype=torch.long).index_put((who, slot), torch.arange(len(who)))
        logits = torch.cat([logits, self.pass_point(passing)], dim=-1) + self.rule_pick_logits(
            rules * allowed
        )
        return PointerOutput(logits=logits, state=state, index=index)

    def rule_pick_logits(self, rules: Tensor) -> Tensor:
        """Return (D, P+1) what the rule's own pick, or its pass, adds to that logit."""
        passes = 1.0 - rules.sum(dim=1, keepdim=True)
        return torch.cat([self.lean[2] * rules, self.lean[3] * passes], dim=1)

    def size_logits(self, state: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return CPU and GPU logits (sizes 1 to 16, unmasked) of chosen slots, from states and features."""
        cpus = self.cpus(state) + self.rule_size_logits(raw, RULE_CPUS_COLUMN, 0)
        return cpus, self.gpus(state) + self.rule_size_logits(raw, RULE_GPUS_COLUMN, 1)

    def rule_sizes(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return (D,) CPUs and GPUs minus 1 that the rule gives to slots with these features."""
        shown = raw[:, [RULE_CPUS_COLUMN, RULE_GPUS_COLUMN]] * SIZES_MAX
        sizes = (shown.round().long() - 1).clamp(min=0)
        return sizes[:, 0], sizes[:, 1]

    def rule_size_logits(self, raw: Tensor, column: int, which: int) -> Tensor:
        """Return (D, 16) what distance from the rule's size adds to the logits."""
        away = (raw[:, column, None] * SIZES_MAX - torch.arange(1.0, SIZES_MAX + 1)).abs()
        return self.lean[which] * away


def _zero_inputs(layer: nn.Linear, columns: Sequence[int]) -> None:
    """Set the weights of inputs to zero, now and in training; the shape of layer and file stays the same."""
    seen = torch.ones(layer.in_features)
    seen[list(columns)] = 0.0
    with torch.no_grad():
        layer.weight.mul_(seen)
    layer.weight.register_hook(lambda gradient: gradient * seen)  # type: ignore[no-untyped-call]  # torch says nothing of it


def pack_tokens(layer: nn.Linear, token: Tensor) -> Tokens:
    """Apply a layer to the (B, N, S, F) tokens that are present: their first feature is 1."""
    flat = token.flatten(0, 2)
    place = torch.nonzero(flat[:, 0] > 0)[:, 0]
    return Tokens(
        state=torch.relu(layer(flat.index_select(0, place))), owner=place // token.shape[2], place=place
    )


def attend(query: Tensor, token: Tokens) -> Tensor:
    """Return what each head of each cluster gathers from its tokens: (C, heads * H); zero over nothing.

    The key matrix is folded into the ``query`` (C, heads, H) and the value matrix is applied after the sum:
    the same function as ordinary multi-head attention with linear keys and values, for a fraction of the work
    per token.
    """
    clusters, heads, h = query.shape
    state, owner = token.state, token.owner
    score = (query[owner] * state[:, None]).sum(dim=2) / h**0.5
    with torch.no_grad():  # only keeps the exponential in range; the share does not depend on it
        shape = owner[:, None].expand(-1, heads)
        top = torch.zeros(clusters, heads).scatter_reduce(0, shape, score, "amax", include_self=False)
    weight = torch.exp(score - top[owner])
    total = torch.ones(clusters, heads) * 1e-30
    share = weight / total.index_add(0, owner, weight)[owner]
    spread = (share[:, :, None] * state[:, None]).flatten(1)
    return torch.zeros(clusters, heads * h).index_add(0, owner, spread)


def _mean(token: Tokens, clusters: int) -> Tensor:
    """Return (C, H) the mean of each cluster's tokens; zero over nothing."""
    count = torch.zeros(clusters).index_add(0, token.owner, torch.ones(len(token.owner)))
    total = torch.zeros(clusters, token.state.shape[1]).index_add(0, token.owner, token.state)
    return total / count.clamp(min=1.0)[:, None]


class Critic(nn.Module):
    """Central critic for MAPPO: the future cost, from all clusters' features pooled."""

    def __init__(self, hidden: int = 64) -> None:
        """Make the layers."""
        super().__init__()
        self.task = nn.Linear(TASK_FEATURES, hidden)
        self.running = nn.Linear(RUNNING_FEATURES, hidden)
        self.cluster = nn.Linear(CLUSTER_FEATURES + 2 * hidden, hidden)
        self.first = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 1)

    def forward(self, batch: FeatureBatch) -> Tensor:
        """Return (B,) values."""
        task = torch.relu(self.task(batch.task)).sum(dim=2)
        running = torch.relu(self.running(batch.running)).sum(dim=2)
        cluster = torch.relu(self.cluster(torch.cat([batch.cluster, task, running], dim=-1)))
        value: Tensor = self.last(torch.relu(self.first(cluster.sum(dim=1))))[:, 0]
        return value
