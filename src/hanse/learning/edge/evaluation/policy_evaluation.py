"""Measurement of edge policies on the same streams, with intervals."""

from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any, Final

import msgspec
import numpy as np

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env.policy_interface import Floats
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.network import network_file
from hanse.learning.edge.players.play import (
    EpisodeOutcome,
    Player,
    baseline_player,
    network_player,
    play,
    true_durations,
)
from hanse.learning.edge.players.search_players import search_player
from hanse.learning.edge.policies.priced import Prices, compile_rule

DEFAULT_POLICIES: Final = (
    "random",
    "min",
    "fifo",
    "sjf",
    "drf",
    "tiresias",
    "tiresias-elastic",
    "optimus-published",
    "optimus",
    "priced",
    "network",
)
"""Policies that ``eval`` measures by default.

``rollout`` and ``clairvoyant`` take longer and are measured only by name.
"""

INDEX_RULE_POLICIES: Final = ("random", "min", "tiresias", "tiresias-elastic", "optimus-published", "optimus")
"""Policies of source 002 whose conflicts go to the lower index, as in its code."""

ROUNDS_MAX: Final = 100_000


class EvaluationRow(msgspec.Struct, frozen=True):
    """Result of one policy in one setting; times in steps."""

    setting: str
    policy: str
    seeds: int
    mean: float
    half_width: float
    """Half of the 95 % interval of the mean over episodes (Student)."""
    spread: float
    """Standard deviation of the episodes' means."""
    median: float
    p95: float
    conflicts: float
    """Share of the choices of a task that lost it to another cluster."""
    ms_per_sub_step: float
    """CPU time of one decision and one step of one episode, batched."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def setting_by_name(name: str, load: float = 1.0) -> Setting:
    """Return a setting by name, its arrival rate times ``load``."""
    setting = {
        "syn3": settings.syn3,
        "hetero6": settings.hetero6,
        "single3": settings.single3,
        "single6": settings.single6,
        "order3": settings.order3,
        "testbed3": settings.testbed3,
    }[name]()
    return msgspec.structs.replace(setting, arrival_rate=setting.arrival_rate * load)


def half_width(means: Floats) -> float:
    """Return half of the 95 % interval of a mean.

    Student's factor by its expansion in one over the degrees of freedom: within 0.3 % from five values on.
    """
    degrees_of_freedom = max(len(means) - 1, 1)
    factor = 1.96 + 2.372 / degrees_of_freedom + 2.822 / degrees_of_freedom**2 + 2.556 / degrees_of_freedom**3
    return float(factor * means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan")


def make_player(policy: str, setting: Setting, network: Path | None) -> Player | str:
    """Return the player of a policy's name, or a sentence why there is none."""
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    if policy == "clairvoyant":
        return search_player(rule, setting, futures=0)
    if policy.startswith("rollout"):
        return search_player(rule, setting, futures=int(policy.partition("-")[2] or 8), horizon=12)
    if policy == "network":
        loaded = network_file.load_network(network or network_file.shipped_path())
        return loaded if isinstance(loaded, str) else network_player(loaded[0], rule)
    player = baseline_player(policy, setting)
    return f"there is no policy {policy!r}" if player is None else player


def make_row(setting: Setting, policy: str, outcome: EpisodeOutcome, cpu_seconds: float) -> EvaluationRow:
    """Return the result row of an outcome."""
    means = outcome.mean
    return EvaluationRow(
        setting=setting.name,
        policy=policy,
        seeds=len(means),
        mean=float(means.mean()),
        half_width=half_width(means),
        spread=float(means.std(ddof=1)) if len(means) > 1 else float("nan"),
        median=float(np.median(outcome.completion)),
        p95=float(np.percentile(outcome.completion, 95)),
        conflicts=float(outcome.conflicts.sum() / max(int(outcome.choices.sum()), 1)),
        ms_per_sub_step=1e3 * cpu_seconds / max(outcome.sub_steps, 1),
    )


def evaluate(
    name: str, policies: Sequence[str], seeds: int, first_seed: int, load: float, network: Path | None
) -> list[EvaluationRow] | str:
    """Measure all policies on the same streams of one setting; return a sentence if one cannot run."""
    rows: list[EvaluationRow] = []
    for policy in policies:
        setting = msgspec.structs.replace(
            setting_by_name(name, load), bayes=policy not in INDEX_RULE_POLICIES
        )
        if policy == "optimus-published" and setting.speed_table.limit[0] != setting.speed_table.limit[1]:
            continue  # the published exchange of axes is defined on a square grid only
        player = make_player(policy, setting, network)
        if isinstance(player, str):
            return player
        streams = make_streams(setting, list(range(first_seed, first_seed + seeds)))
        begun = process_time()
        outcome = play(setting, streams, player, ROUNDS_MAX)
        rows.append(make_row(setting, policy, outcome, process_time() - begun))
    return rows
