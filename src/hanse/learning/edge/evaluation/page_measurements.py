"""Measurements of the results page: policies on common streams, ways of coordination, speeds."""

from collections.abc import Callable
from time import perf_counter, process_time
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.keyed_random import derive_key
from hanse.learning.edge.env.published_observation import observe
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.evaluation.network_evaluation import markdown_table
from hanse.learning.edge.evaluation.policy_evaluation import (
    EvaluationRow,
    evaluate,
    half_width,
    setting_by_name,
)
from hanse.learning.edge.network.features import encode
from hanse.learning.edge.network.network import EdgeNetwork, choose_from_features
from hanse.learning.edge.players.coordination import CoordinationResult, GossipLink, Mode, coordinate
from hanse.learning.edge.players.play import priced_player, true_durations
from hanse.learning.edge.policies.baselines import choose_random
from hanse.learning.edge.policies.priced import Prices, compile_rule, shared_room

PrintLine = Callable[[str], None]

FIRST_SEED: Final = 5_000_000

PUBLISHED: Final[dict[str, dict[str, str]]] = {
    "single3": {
        "random": "12.84",
        "min": "12.75",
        "tiresias": "14.66",
        "optimus-published": "8.56",
        "TapFinger": "6.42",
    },
    "syn3": {
        "random": "15.12",
        "min": "28.82",
        "tiresias-elastic": "7.55",
        "optimus-published": "7.73",
        "TapFinger": "4.29",
    },
    "hetero6": {
        "random": "23.57",
        "min": "33.46",
        "tiresias-elastic": "10.79",
        "optimus-published": "8.13",
        "TapFinger": "4.87",
    },
}
"""Figures of source 002, one seed each."""

SECTION_POLICIES: Final = {
    "single3": (
        "random", "min", "fifo", "sjf", "drf", "tiresias", "optimus-published", "optimus", "priced",
        "network",
    ),
    "syn3": (
        "random", "min", "fifo", "sjf", "drf", "tiresias", "tiresias-elastic", "optimus-published", "optimus",
        "priced", "rollout-8", "network", "clairvoyant",
    ),
    "hetero6": (
        "random", "min", "fifo", "sjf", "drf", "tiresias", "tiresias-elastic", "optimus-published", "optimus",
        "priced", "network", "clairvoyant",
    ),
    "testbed3": ("random", "min", "fifo", "sjf", "drf", "tiresias-elastic", "optimus", "priced", "network"),
}  # fmt: skip


def policy_section(name: str, seeds: int, say: PrintLine) -> str:
    """Return a table of all policies in one setting."""
    rows: list[EvaluationRow] = []
    for policy in SECTION_POLICIES[name]:
        answer = evaluate(name, (policy,), seeds, FIRST_SEED, 1.0, None)
        assert not isinstance(answer, str), answer
        rows.extend(answer)
        say(f"{name} {policy} {rows[-1].mean:.3f}")
    published = PUBLISHED.get(name, {})
    lines = [
        (
            row.policy,
            f"{row.mean:.3f} ± {row.half_width:.3f}",
            f"{row.median:.0f}",
            f"{row.p95:.0f}",
            f"{row.conflicts:.3f}",
            published.get(row.policy, ""),
        )
        for row in rows
    ]
    if "TapFinger" in published:
        lines.append(("TapFinger", "", "", "", "", published["TapFinger"]))
    return markdown_table(("policy", "mean ± 95 %", "median", "p95", "conflicts", "published, 1 seed"), lines)


def coordination_table(network: EdgeNetwork, seeds: int, say: PrintLine) -> str:
    """Return a table of all ways of coordination, for the rule and for the network."""
    setting = setting_by_name("syn3")
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    streams = make_streams(setting, list(range(FIRST_SEED + 20_000, FIRST_SEED + 20_000 + 2 * seeds)))
    cases: list[tuple[str, Mode, GossipLink]] = [
        ("none", "none", GossipLink()),
        ("gossip, fresh each step", "gossip", GossipLink()),
        ("gossip, 1 step late", "gossip", GossipLink(delay_steps=1)),
        ("gossip, 3 steps late", "gossip", GossipLink(delay_steps=3)),
        ("gossip, 30 % lost", "gossip", GossipLink(loss=0.3)),
        ("full sharing", "full", GossipLink()),
        ("central", "central", GossipLink()),
    ]
    rows = []
    for policy, case_network in (("rule", None), ("network", network)):
        for label, mode, link in cases:
            rows.append(
                (
                    policy,
                    label,
                    *_coordination_cells(coordinate(setting, streams, rule, mode, case_network, link)),
                )
            )
            say(" ".join(rows[-1]))
    head = (
        "policy",
        "told",
        "mean ± 95 %",
        "p95",
        "bytes per start",
        "rescheduled per start",
        "trips",
        "ms per round",
    )
    return markdown_table(head, rows)


def _coordination_cells(result: CoordinationResult) -> tuple[str, ...]:
    means = result.outcome.mean
    return (
        f"{means.mean():.3f} ± {half_width(means):.3f}",
        f"{np.percentile(result.outcome.completion, 95):.0f}",
        f"{result.bytes_per_start:.0f}",
        f"{result.conflicts_per_start:.3f}",
        str(result.trips),
        f"{result.compute_ms:.3f}",
    )


def sub_steps_per_second(setting: Setting, episodes: int) -> float:
    """Measure sub-steps per CPU-second with observations, without the policy's time."""
    streams = make_streams(setting, list(range(episodes)))
    world = EdgeWorld(setting, streams)
    key = derive_key(streams.seed.astype(np.uint64)[:, None], np.arange(setting.clusters)[None])
    spent = 0.0
    for round_ in range(120):
        view = world.view()
        choice = choose_random(
            view,
            setting.speed_table.minimum,
            setting.speed_table.limit,
            derive_key(key, np.full((1, 1), round_)),
        )
        begun = process_time()
        world.step(choice)
        observe(world)
        spent += process_time() - begun
    return world.sub_steps / spent


def inference_ms(network: EdgeNetwork, clusters: int = 10) -> tuple[float, float]:
    """Measure the median wall time of one decision for so many clusters: with its features, and without."""
    setting = msgspec.structs.replace(
        setting_by_name("syn3"),
        capacity=((16, 16),) * clusters,
        arrival_rate=1.0 * clusters,
        tasks_per_cluster=16,
    )
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    world = EdgeWorld(setting, make_streams(setting, [1]))
    player, times = priced_player(setting), []
    for _ in range(60):
        view = world.view()
        begun = perf_counter()
        features = encode(rule, view, shared_room(view))
        encoded = perf_counter()
        choose_from_features(network, rule, view, features)
        times.append((perf_counter() - begun, perf_counter() - encoded))
        player(world)
    whole, forward = np.median(np.array(times), axis=0)
    return 1e3 * float(whole), 1e3 * float(forward)
