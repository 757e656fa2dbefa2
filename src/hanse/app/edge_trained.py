"""Judging trained edge networks: several training seeds, the ablations, and the guard around them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from hanse.app.edge_evaluation import half_width, named
from hanse.policy.edge.network import About, Network
from hanse.policy.edge.priced import PricedRule, Prices, compile_rule
from hanse.policy.edge.view import Floats
from hanse.sim.edge import trained
from hanse.sim.edge.guarded import Guarded
from hanse.sim.edge.play import by_rule, play, true_durations
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.streams import Streams, make_streams

Say = Callable[[str], None]

FRESH_SEED: Final = 5_010_000
"""Streams from here on judge trained networks; none was trained or validated on them."""

FRESH: Final = 200
"""Fresh episodes of the setting that was trained for."""

TRAINED: Final = Path("docs/results/edge-trained")
"""Where the repository keeps the trained files that the results page judges; the package ships one."""

ABLATIONS: Final = {
    "mappo": "a central critic (MAPPO) instead of the same-stream group",
    "fixed": "no randomised course: the published setting alone",
    "wide": "the course also has kinds of the test-bed's shape and single-task mode",
    "mean": "averages instead of the attention encoder",
    "none": "no encoder: a cluster sees itself and each task alone",
    "no-pointer": "no pointer: the oldest task that fits is taken",
    "vanilla": "one perceptron over all slots, no encoder, no pointer (vanilla MARL)",
    "full-lean": "leaning on the rule in everything",
    "scratch": "no imitation first",
    "scratch-mappo": "no imitation first and a central critic, as source 002 trains",
}
"""What is different in ``ablation-<name>.npz``."""


class Case(msgspec.Struct, frozen=True, eq=False):
    """A place to judge a network in, with the rule's answer on the same streams."""

    label: str
    setting: Setting
    streams: Streams
    rule: PricedRule
    plain: Floats
    """(E,) the rule's mean completion of each episode."""


def case(label: str, setting: Setting, episodes: int) -> Case:
    """Play the rule on fresh streams of a setting."""
    streams = make_streams(setting, list(range(FRESH_SEED, FRESH_SEED + episodes)))
    rule = compile_rule(true_durations(setting), setting.book.minimum, Prices())
    return Case(label, setting, streams, rule, play(setting, streams, by_rule(setting)).mean)


def cases() -> list[Case]:
    """Where the network was trained, and where it was not."""
    eight = msgspec.structs.replace(
        named("syn3"),
        name="eight",
        capacity=((4, 8), (8, 4), (6, 6), (16, 8), (32, 32), (20, 10), (12, 16), (16, 16)),
        # 75 % of its 100 GPUs, as in the published settings: 12 GPU-steps per task on the mean
        arrival_rate=0.75 * 100 / 12,
    )
    return [
        case("syn3, load as published", named("syn3"), FRESH),
        case("syn3, load -33 %", named("syn3", 2 / 3), 60),
        case("syn3, load -17 %", named("syn3", 0.83), 60),
        case("syn3, load +17 %", named("syn3", 1.17), 60),
        case("hetero6, load as published", named("hetero6"), 60),
        case("hetero6, load -17 %", named("hetero6", 0.83), 60),
        case("hetero6, load +17 %", named("hetero6", 1.17), 60),
        case("eight unequal clusters, CPUs and GPUs unequal", eight, 60),
        case("test-bed shape, three (16, 8)", named("testbed3"), 60),
        case("test-bed shape, load +17 %", named("testbed3", 1.17), 60),
        case("single3 (one start per step, noise)", named("single3"), 60),
    ]


def learned_means(at: Case, network: Network) -> Floats:
    """(E,) a network's mean completion of each episode."""
    return play(at.setting, at.streams, trained.by_network(network, at.rule)).mean


def percent(learned: Floats, plain: Floats) -> str:
    """How much worse (+) than the rule."""
    return f"{100 * (learned.mean() / plain.mean() - 1):+.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def generalisation(network: Network, places: Sequence[Case], say: Say) -> str:
    """The shipped network everywhere, with intervals of the difference."""
    rows = []
    for at in places:
        learned = learned_means(at, network)
        gap = learned - at.plain
        rows.append(
            (
                at.label,
                str(len(gap)),
                f"{learned.mean():.3f} ± {half_width(learned):.3f}",
                f"{at.plain.mean():.3f}",
                f"{gap.mean():+.3f} ± {half_width(gap):.3f}",
                percent(learned, at.plain),
            )
        )
        say(" ".join(rows[-1]))
    return table(("where", "episodes", "network", "rule", "difference ± 95 %", "relative"), rows)


def load_all(folder: Path, prefix: str) -> list[tuple[str, Network, About]]:
    """The trained files of a folder whose names begin with ``prefix``, in order of their names."""
    found = []
    for path in sorted(folder.glob(prefix + "*.npz")):
        loaded = trained.load_network(path)
        assert not isinstance(loaded, str), loaded
        found.append((path.stem.removeprefix(prefix), *loaded))
    return found


def training_seeds(folder: Path, places: Sequence[Case], say: Say) -> str:
    """Every training seed everywhere: how far from the rule, and the mean over seeds with its interval."""
    files = load_all(folder, "seed-")
    if len(files) < 2:
        return "(fewer than two trained seeds at hand)\n"
    rows = []
    for at in places:
        means = [learned_means(at, network) for _, network, _ in files]
        each = np.array([float(mean.mean()) for mean in means])
        worst = max(float(mean.mean() / at.plain.mean() - 1) for mean in means)
        rows.append(
            (
                at.label,
                f"{at.plain.mean():.3f}",
                f"{each.mean():.3f} ± {half_width(each):.3f}",
                *(percent(mean, at.plain) for mean in means),
                f"{100 * worst:+.1f} %",
            )
        )
        say(" ".join(rows[-1]))
    numbers = [f"seed {name}" for name, _, _ in files]
    head = ("where", "rule", "mean over seeds ± 95 %", *numbers, "worst")
    minutes = ", ".join(f"{float(str(about.measured['cpu_seconds'])) / 60:.1f}" for _, _, about in files)
    return table(head, rows) + f"\nCPU-minutes of training: {minutes}.\n"


def ablations(folder: Path, places: Sequence[Case], say: Say) -> str:
    """One training seed of every ablation, beside the shipped recipe at the same seed and budget."""
    rows: list[tuple[str, ...]] = []
    for name, network, about in load_all(folder, "ablation-"):
        relative = [percent(learned_means(at, network), at.plain) for at in places]
        first = learned_means(places[0], network)
        minutes = float(str(about.measured["cpu_seconds"])) / 60
        rows.append(
            (
                name,
                ABLATIONS.get(name, "as shipped"),
                f"{minutes:.1f}",
                f"{first.mean():.3f} ± {half_width(first):.3f}",
                *relative,
            )
        )
        say(" ".join(rows[-1]))
    if not rows:
        return "None was trained.\n"
    head = ("ablation", "what", "CPU-min", places[0].label, *(f"{at.label}, to the rule" for at in places))
    return table(head, rows)


def guards(networks: Sequence[tuple[str, Network]], say: Say) -> str:
    """Networks alone and behind the guard, on streams long enough for it to judge."""
    rows = []
    for setting in (named("syn3"), named("testbed3")):
        long = msgspec.structs.replace(setting, tasks_per_cluster=GUARDED_TASKS)
        at = case(long.name, long, GUARDED_EPISODES)
        plain, half = play(long, at.streams, by_rule(long)), long.tasks // 2
        for label, network in networks:
            guard = Guarded(network, at.rule, GUARDED_EPISODES)
            behind = play(long, at.streams, guard)
            late = behind.completion[:, half:].mean(axis=1)
            rows.append(
                (
                    at.label,
                    label,
                    f"{at.plain.mean():.3f}",
                    percent(learned_means(at, network), at.plain),
                    percent(behind.mean, at.plain),
                    percent(late, plain.completion[:, half:].mean(axis=1)),
                    f"{100 * guard.learned_share:.0f} %",
                    f"{100 * guard.put_aside:.0f} %",
                )
            )
            say(" ".join(rows[-1]))
    head = ("where", "network", "rule", "alone", "guarded", "guarded, second half", "it decided", "put aside")
    return table(head, rows)


GUARDED_TASKS: Final = 640
"""Tasks per cluster of the streams on which the guard is shown: ten times an episode of source 002."""
GUARDED_EPISODES: Final = 12
