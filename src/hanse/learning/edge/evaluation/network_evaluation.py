"""Evaluation of trained edge networks: several training seeds, the ablations, and the guard around them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import Floats
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import Streams, make_streams
from hanse.learning.edge.evaluation.policy_evaluation import half_width, setting_by_name
from hanse.learning.edge.network import network_file
from hanse.learning.edge.network.network import EdgeNetwork, NetworkHeader
from hanse.learning.edge.players.guarded_player import GuardedPlayer
from hanse.learning.edge.players.play import network_player, play, priced_player, true_durations
from hanse.learning.edge.policies.priced import PricedRule, Prices, compile_rule

PrintLine = Callable[[str], None]

FRESH_SEED: Final = 5_010_000
"""First stream for the evaluation of trained networks; none was trained or validated on them."""

UNSEEN_SEED: Final = 5_300_000
"""First of further streams of the setting that was trained for: those from ``FRESH_SEED`` on were used to
compare recipes, so that the last recipe might be the one that suits them."""

FRESH_EPISODES: Final = 200
"""Episodes of the setting that was trained for."""

MEAN_MAX: Final = 3.60
"""Limit in steps for the mean over training seeds in the setting that was trained for."""

SEEDS_WANTED: Final = 5

WORSE_MAX: Final = 0.02
"""Limit for every training seed at other loads and on cluster sets that were not trained on: share by which
it may be worse."""

TRAINED_FOLDER: Final = Path("docs/results/edge-trained")
"""Folder of the repository with the trained files of the results page; the package ships one."""

ABLATIONS: Final = {
    "reference": "the recipe itself",
    "told": "the network is shown the rule's own pick",
    "mappo": "a central critic (MAPPO) instead of the same-stream group",
    "fixed": "no randomised course: the published setting alone",
    "wide": "the course also has kinds of the test-bed's shape and single-task mode",
    "mean": "averages instead of the attention encoder",
    "no-encoder": "no attention encoder: a cluster sees itself and each task alone",
    "no-pointer": "no pointer: the oldest task that fits is taken",
    "vanilla": "one perceptron over all slots, no encoder, no pointer (vanilla MARL)",
    "full-lean": "leaning on the rule in everything",
    "scratch": "no imitation first",
    "scratch-mappo": "no imitation first and a central critic, as source 002 trains",
}
"""Difference of ``ablation-<name>.npz`` from the recipe."""


class EvaluationCase(msgspec.Struct, frozen=True, eq=False):
    """Setting in which to evaluate a network, with the rule's result on the same streams."""

    label: str
    setting: Setting
    streams: Streams
    rule: PricedRule
    rule_means: Floats
    """(E,) mean completion of each episode under the rule."""
    is_bounded: bool
    """True if a network must be at most ``WORSE_MAX`` worse than the rule here."""
    is_trained_setting: bool = False
    """True if this setting was trained for: ``MEAN_MAX`` limits the mean over seeds."""


def make_case(
    label: str,
    setting: Setting,
    episodes: int,
    *,
    is_bounded: bool = False,
    trained_first_seed: int | None = None,
) -> EvaluationCase:
    """Play the rule on fresh streams; ``trained_first_seed``: first stream of a setting trained for."""
    first = FRESH_SEED if trained_first_seed is None else trained_first_seed
    streams = make_streams(setting, list(range(first, first + episodes)))
    rule = compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())
    rule_means = play(setting, streams, priced_player(setting)).mean
    return EvaluationCase(
        label, setting, streams, rule, rule_means, is_bounded, trained_first_seed is not None
    )


def evaluation_cases() -> list[EvaluationCase]:
    """Return settings in which the network was trained, and others."""
    eight = msgspec.structs.replace(
        setting_by_name("syn3"),
        name="eight",
        capacity=((4, 8), (8, 4), (6, 6), (16, 8), (32, 32), (20, 10), (12, 16), (16, 16)),
        # 75 % of its 100 GPUs, as in the published settings: 12 GPU-steps per task on the mean
        arrival_rate=0.75 * 100 / 12,
    )
    return [
        make_case(
            "syn3, load as published", setting_by_name("syn3"), FRESH_EPISODES, trained_first_seed=FRESH_SEED
        ),
        make_case(
            "syn3, load as published, streams not seen before",
            setting_by_name("syn3"),
            FRESH_EPISODES,
            trained_first_seed=UNSEEN_SEED,
        ),
        make_case("syn3, load -33 %", setting_by_name("syn3", 2 / 3), 60),
        make_case("syn3, load -17 %", setting_by_name("syn3", 0.83), 60, is_bounded=True),
        make_case("syn3, load +17 %", setting_by_name("syn3", 1.17), 60, is_bounded=True),
        make_case("hetero6, load as published", setting_by_name("hetero6"), 60, is_bounded=True),
        make_case("hetero6, load -17 %", setting_by_name("hetero6", 0.83), 60, is_bounded=True),
        make_case("hetero6, load +17 %", setting_by_name("hetero6", 1.17), 60, is_bounded=True),
        make_case("eight unequal clusters, CPUs and GPUs unequal", eight, 60, is_bounded=True),
        make_case("test-bed shape, three (16, 8)", setting_by_name("testbed3"), 60),
        make_case("test-bed shape, load +17 %", setting_by_name("testbed3", 1.17), 60),
        make_case("single3 (one start per step, noise)", setting_by_name("single3"), 60),
    ]


def network_means(at: EvaluationCase, network: EdgeNetwork) -> Floats:
    """Return (E,) a network's mean completion of each episode."""
    return play(at.setting, at.streams, network_player(network, at.rule)).mean


def relative_difference(learned: Floats, rule_means: Floats) -> str:
    """Format how much worse (+) than the rule."""
    return f"{100 * (learned.mean() / rule_means.mean() - 1):+.1f} %"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def generalisation_table(network: EdgeNetwork, cases: Sequence[EvaluationCase], say: PrintLine) -> str:
    """Return a table of the shipped network in all cases, with intervals of the difference."""
    rows = []
    for at in cases:
        learned = network_means(at, network)
        gap = learned - at.rule_means
        rows.append(
            (
                at.label,
                str(len(gap)),
                f"{learned.mean():.3f} ± {half_width(learned):.3f}",
                f"{at.rule_means.mean():.3f}",
                f"{gap.mean():+.3f} ± {half_width(gap):.3f}",
                relative_difference(learned, at.rule_means),
            )
        )
        say(" ".join(rows[-1]))
    return markdown_table(("where", "episodes", "network", "rule", "difference ± 95 %", "relative"), rows)


def load_all(folder: Path, prefix: str) -> list[tuple[str, EdgeNetwork, NetworkHeader]]:
    """Load the trained files of a folder whose names begin with ``prefix``, in order of names."""
    found = []
    for path in sorted(folder.glob(prefix + "*.npz")):
        loaded = network_file.load_network(path)
        assert not isinstance(loaded, str), loaded
        found.append((path.stem.removeprefix(prefix), *loaded))
    return found


def training_seeds_section(folder: Path, cases: Sequence[EvaluationCase], say: PrintLine) -> str:
    """Return the results of every training seed relative to the rule, and the mean over seeds."""
    files = load_all(folder, "seed-")
    if len(files) < 2:
        return "(fewer than two trained seeds at hand)\n"
    names = [name for name, _, _ in files]
    rows, verdicts = [], []
    for at in cases:
        means = [network_means(at, network) for _, network, _ in files]
        each = np.array([float(mean.mean()) for mean in means])
        worst = max(float(mean.mean() / at.rule_means.mean() - 1) for mean in means)
        verdicts += verdict_sentences(at, names, each)
        rows.append(
            (
                at.label,
                f"{at.rule_means.mean():.3f}",
                f"{each.mean():.3f} ± {half_width(each):.3f}",
                *(relative_difference(mean, at.rule_means) for mean in means),
                f"{100 * worst:+.1f} %",
            )
        )
        say(" ".join(rows[-1]))
    head = ("where", "rule", "mean over seeds ± 95 %", *(f"seed {name}" for name in names), "worst")
    minutes = ", ".join(f"{float(str(about.measured['cpu_seconds'])) / 60:.1f}" for _, _, about in files)
    chosen = ", ".join(f"{about.measured['validation']} ({about.measured['kept']})" for _, _, about in files)
    few = "" if len(files) >= SEEDS_WANTED else f"{SEEDS_WANTED} seeds are wanted, these are {len(files)}. "
    summary = f"{few}CPU-minutes of training: {minutes}. Validation to the rule, and its iteration: {chosen}."
    bars = "".join(f"- {line}\n" for line in verdicts)
    return markdown_table(head, rows) + f"\n{summary}\n\nThe bars:\n\n{bars}"


def verdict_sentences(at: EvaluationCase, names: Sequence[str], each: Floats) -> list[str]:
    """Return sentences on the limits of a case, from the (S,) means of the seeds; none without limits."""
    rule_mean = float(at.rule_means.mean())
    sentences = []
    if at.is_trained_setting:
        mean = float(each.mean())
        over = [name for name, mean_of_seed in zip(names, each, strict=True) if mean_of_seed > MEAN_MAX]
        above = [name for name, mean_of_seed in zip(names, each, strict=True) if mean_of_seed >= rule_mean]
        sentences = [
            f"{at.label}: a mean over the seeds of at most {MEAN_MAX:.2f}: {verdict_word(mean <= MEAN_MAX)}, "
            f"{mean:.3f}"
            + (f" (by itself, not so: seed {', '.join(over)})." if over else " (and every seed by itself)."),
            f"{at.label}: below the rule on the same streams: {verdict_word(mean < rule_mean)}, "
            f"{mean:.3f} against "
            f"{rule_mean:.3f}" + (f" (not so: seed {', '.join(above)})." if above else " (every seed)."),
        ]
    if at.is_bounded:
        worst = int(each.argmax())
        share = float(each[worst]) / rule_mean - 1
        sentences.append(
            f"{at.label}: no seed more than {100 * WORSE_MAX:.0f} % worse than the rule: "
            f"{verdict_word(share <= WORSE_MAX)}, the worst is seed {names[worst]} with {100 * share:+.1f} %."
        )
    return sentences


def verdict_word(is_kept: bool) -> str:
    """Return the word for a limit."""
    return "held" if is_kept else "**missed**"


def ablations_table(folder: Path, cases: Sequence[EvaluationCase], say: PrintLine) -> str:
    """Return a table of one training seed of every ablation, beside the recipe at equal seed and budget."""
    rows: list[tuple[str, ...]] = []
    for name, network, about in load_all(folder, "ablation-"):
        relative = [relative_difference(network_means(at, network), at.rule_means) for at in cases]
        first = network_means(cases[0], network)
        minutes = float(str(about.measured["cpu_seconds"])) / 60
        rows.append(
            (
                name,
                ABLATIONS[name],
                f"{minutes:.1f}",
                f"{about.measured['kept']}",
                f"{about.measured['last']}",
                f"{first.mean():.3f} ± {half_width(first):.3f}",
                *relative,
            )
        )
        say(" ".join(rows[-1]))
    if not rows:
        return "None was trained.\n"
    judged = (f"{at.label}, to the rule" for at in cases)
    head = ("ablation", "what", "CPU-min", "kept", "last", cases[0].label, *judged)
    return markdown_table(head, rows)


def guard_table(networks: Sequence[tuple[str, EdgeNetwork]], say: PrintLine) -> str:
    """Return a table of networks alone and behind the guard, on streams long enough for it to judge."""
    rows = []
    for setting in (setting_by_name("syn3"), setting_by_name("testbed3")):
        long = msgspec.structs.replace(setting, tasks_per_cluster=GUARDED_TASKS)
        at = make_case(long.name, long, GUARDED_EPISODES)
        rule_outcome, half = play(long, at.streams, priced_player(long)), long.task_count // 2
        for label, network in networks:
            guard = GuardedPlayer(network, at.rule, GUARDED_EPISODES)
            guarded_outcome = play(long, at.streams, guard)
            late = guarded_outcome.completion[:, half:].mean(axis=1)
            rows.append(
                (
                    at.label,
                    label,
                    f"{at.rule_means.mean():.3f}",
                    relative_difference(network_means(at, network), at.rule_means),
                    relative_difference(guarded_outcome.mean, at.rule_means),
                    relative_difference(late, rule_outcome.completion[:, half:].mean(axis=1)),
                    f"{100 * guard.learned_share:.0f} %",
                    f"{100 * guard.untrusted_share:.0f} %",
                )
            )
            say(" ".join(rows[-1]))
    head = ("where", "network", "rule", "alone", "guarded", "guarded, second half", "it decided", "put aside")
    return markdown_table(head, rows)


GUARDED_TASKS: Final = 640
"""Tasks per cluster of the streams for the guard: ten times an episode of source 002."""
GUARDED_EPISODES: Final = 12
