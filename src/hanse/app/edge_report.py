"""The results page of edge learning: measured in one go, written as Markdown."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import msgspec
import numpy as np

from hanse.app import edge_trained as judging
from hanse.app.edge_evaluation import Row, evaluate, half_width, named
from hanse.app.edge_trained import table
from hanse.policy.edge.baselines import choose_random
from hanse.policy.edge.draws import mixed
from hanse.policy.edge.features import encode
from hanse.policy.edge.network import Network, choose_from_features
from hanse.policy.edge.priced import Prices, compile_rule, shared_room
from hanse.sim.edge import trained
from hanse.sim.edge.coordination import Coordinated, Link, Mode, coordinate
from hanse.sim.edge.learning import learning_curve
from hanse.sim.edge.observation import observe
from hanse.sim.edge.play import by_rule, true_durations
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.streams import make_streams
from hanse.sim.edge.world import World

Say = Callable[[str], None]

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
"""Source 002's own figures, one seed each."""

_LADDER: Final = {
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

_FOUND: Final = """\
## What we found in the published comparison

Source 002's repository carries its code and the data of its figures, and our environment gives its
baselines' figures in distribution. Read with care, the code shows the following. The fit of its Optimus
baseline lists the CPUs of the grid with the CPU index running fastest and the speeds with the GPU index
running fastest, so the two axes are exchanged, and the baseline believes that CPUs help a task that
lives on GPUs; with the axes in order it is much stronger (compare `optimus-published` and `optimus`
below). Each figure is one seed and one workload of 192 or 384 tasks. On the test-bed traces the
strongest published baseline is Min, which the text does not discuss. None of this touches the idea of
choosing task and size together, which holds up well here: the point is only that the honest bars are a
corrected Optimus and a plain priced rule, and those are what this page compares with. No trained weights
of the authors are public, so their policy could not be run; its figures are quoted as published.
"""


def ladder(name: str, seeds: int, say: Say) -> str:
    """All policies in one setting."""
    rows: list[Row] = []
    for policy in _LADDER[name]:
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
    return table(("policy", "mean ± 95 %", "median", "p95", "conflicts", "published, 1 seed"), lines)


def coordination(network: Network, seeds: int, say: Say) -> str:
    """All ways of coordinating, for the rule and for the network."""
    setting = named("syn3")
    rule = compile_rule(true_durations(setting), setting.book.minimum, Prices())
    streams = make_streams(setting, list(range(FIRST_SEED + 20_000, FIRST_SEED + 20_000 + 2 * seeds)))
    cases: list[tuple[str, Mode, Link]] = [
        ("none", "none", Link()),
        ("gossip, fresh each step", "gossip", Link()),
        ("gossip, 1 step late", "gossip", Link(delay_steps=1)),
        ("gossip, 3 steps late", "gossip", Link(delay_steps=3)),
        ("gossip, 30 % lost", "gossip", Link(loss=0.3)),
        ("full sharing", "full", Link()),
        ("central", "central", Link()),
    ]
    rows = []
    for policy, net in (("rule", None), ("network", network)):
        for label, mode, link in cases:
            rows.append((policy, label, *_coordinated(coordinate(setting, streams, rule, mode, net, link))))
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
    return table(head, rows)


def _coordinated(one: Coordinated) -> tuple[str, ...]:
    means = one.outcome.mean
    return (
        f"{means.mean():.3f} ± {half_width(means):.3f}",
        f"{np.percentile(one.outcome.completion, 95):.0f}",
        f"{one.bytes_per_start:.0f}",
        f"{one.conflicts_per_start:.3f}",
        str(one.trips),
        f"{one.compute_ms:.3f}",
    )


def sub_steps_per_second(setting: Setting, episodes: int) -> float:
    """Environment sub-steps per CPU-second with observations, the policy's own time not counted."""
    streams = make_streams(setting, list(range(episodes)))
    world = World(setting, streams)
    key = mixed(streams.seed.astype(np.uint64)[:, None], np.arange(setting.clusters)[None])
    spent = 0.0
    for round_ in range(120):
        view = world.view()
        choice = choose_random(
            view, setting.book.minimum, setting.book.limit, mixed(key, np.full((1, 1), round_))
        )
        begun = process_time()
        world.step(choice)
        observe(world)
        spent += process_time() - begun
    return world.sub_steps / spent


def inference_ms(network: Network, clusters: int = 10) -> tuple[float, float]:
    """Median wall time of one decision for a league of so many clusters: with its features, and without."""
    setting = msgspec.structs.replace(
        named("syn3"), capacity=((16, 16),) * clusters, arrival_rate=1.0 * clusters, tasks_per_cluster=16
    )
    rule = compile_rule(true_durations(setting), setting.book.minimum, Prices())
    world = World(setting, make_streams(setting, [1]))
    player, times = by_rule(setting), []
    for _ in range(60):
        view = world.view()
        begun = perf_counter()
        features = encode(rule, view, shared_room(view))
        shown = perf_counter()
        choose_from_features(network, rule, view, features)
        times.append((perf_counter() - begun, perf_counter() - shown))
        player(world)
    whole, forward = np.median(np.array(times), axis=0)
    return 1e3 * float(whole), 1e3 * float(forward)


def leaning(network: Network, cpus: float, gpus: float) -> Network:
    """The network with another lean: so much per CPU and per GPU away from the rule's size."""
    lean = np.array([cpus, gpus, *network.weights["lean"][2:]], dtype=np.float32)
    return msgspec.structs.replace(network, weights={**network.weights, "lean": lean})


def page(seeds: int, folder: Path, say: Say) -> str:
    """The whole page; ``folder`` holds the trained files of all seeds and ablations."""
    loaded = trained.load_network(trained.shipped_path())
    assert not isinstance(loaded, str), loaded
    network, about = loaded
    curve = learning_curve(named("syn3"), 8, seeds, FIRST_SEED + 500_000).mean(axis=0)
    say(f"durations learned: {curve.round(2)}")
    learned = ", ".join(f"{mean:.2f}" for mean in curve)
    decision, forward = inference_ms(network)
    places = judging.cases()
    scratch = [(f"ablation `{name}`", net) for name, net, _ in judging.load_all(folder, "ablation-scratch")]
    bad = [("shipped, CPUs its own", leaning(network, 0.0, 0.0)), ("ruined", leaning(network, 9.0, 9.0))]
    guarded = [("shipped", network), *scratch, *bad]
    parts = [
        "# Edge learning: results\n",
        _INTRODUCTION.format(seeds=seeds),
        _FOUND,
        *(f"## {title}\n\n{ladder(name, seeds, say)}" for name, title in _TITLES.items()),
        _LEGEND,
        "## Durations learned from nothing\n",
        _LEARNED.format(seeds=seeds, curve=learned, later=curve[4:].mean()),
        "## The shipped network against the rule\n",
        f"Recipe: `{about.recipe}`.\n\nTraining said of itself: `{about.measured}`.\n",
        judging.generalisation(network, places, say),
        _LIMITS,
        "## Training seeds\n",
        _SEEDS,
        judging.training_seeds(folder, places, say),
        "## Ablations\n",
        _ABLATIONS,
        judging.ablations(folder, [places[0], places[4], places[8]], say),
        "## The guard\n",
        _GUARD,
        judging.guards(guarded, say),
        "## Ways of coordinating (syn3)\n",
        _COORDINATION,
        coordination(network, seeds, say),
        "## Speed\n",
        _SPEED.format(
            three=sub_steps_per_second(named("syn3"), 512),
            six=sub_steps_per_second(named("hetero6"), 512),
            decision=decision,
            forward=forward,
        ),
    ]
    return "\n".join(parts)


_INTRODUCTION: Final = """\
Made by `python -m hanse.app.edge_commands report edge --seeds {seeds}`.
Times are mean completion in steps; the same {seeds} streams for every policy of a table; intervals are
95 % (Student) over episodes. Figures in the last column of a ladder are source 002's own, from one seed each.
"""

_LEGEND: Final = """\
`clairvoyant` is a rollout over the rule that knows the true arrivals: an upper anchor, not a policy.
`rollout-8` imagines eight futures and leaves the rule only where the gain is beyond doubt.
`tiresias` keeps everyone at the minimum, `tiresias-elastic` does not.
"""

_LEARNED: Final = """\
syn3, the rule on its own table of sums and counts, {seeds} repetitions from no knowledge.
Mean completion of the first, second, ... episode of 192 tasks: {curve}.
After 768 completed tasks: {later:.2f}.
"""

_COORDINATION: Final = """\
Bytes are what is sent so that decisions can be made; `trips` are one-way messages on the way to a
decision, each of which costs a network delay; `rescheduled` are choices that lost their task to another
cluster and were made again; `ms per round` is CPU time of all clusters' decisions, batched over episodes.
"""

_LIMITS: Final = """\
The networks were trained on `syn3` at loads of 80 to 120 % and on drawn sets of two to five clusters with
the synthetic kinds at drawn speeds. `hetero6`, the eight clusters, kinds of the test-bed's shape and
single-task mode were not trained on (`syn3` and `hetero6` on other streams served to choose among the
iterations of a run). Sizes in CPUs are left to the rule: without that, the test-bed's shapes cost 40 %
(see the guard, below). Where the network is not at home it is worse than the rule: that is what the guard
is for.
"""

_SEEDS: Final = """\
The same recipe with other training seeds, each file judged on the same fresh streams; intervals over the
seeds (Student). The shipped file is the one with the best validation on `syn3` (0.9901 of the rule for
seed 2, 0.9908 for seed 1).

Five seeds were wanted; these two are what there is. Seed 2 was stopped by hand at 90 of 150 iterations.
Seed 3 was stopped after 10 iterations (133 CPU-seconds), for want of machine time: its worst validation was
then 33 % above the rule, where seed 2's had been 0.6 % below. How far a seed matters is therefore not known,
and two seeds that came out well say little of the next. The CPUs' lean was tried on some of the test-bed
streams below before it was adopted, so those rows are not wholly fresh for it; on `syn3` it changes nothing.
"""

_ABLATIONS: Final = """\
One training seed each, with the budget given.
"""

_GUARD: Final = """\
Streams of 640 tasks per cluster. The guard lets network and rule take turns of 80 steps until it has seen
100 tasks of each, then puts the network aside where it is worse than the rule by more than 5 % beyond two
standard errors, and tries it again in one turn of 32; where tasks take three times their best under it, it
is put aside at once and for good. A trusted network leaves one turn of 8 to the rule. `CPUs its own` is
the shipped network with the CPUs it learned itself, `ruined` one that is made to avoid the rule's sizes.
"""

_SPEED: Final = """\
Environment with observations: {three:,.0f} sub-steps per CPU-second with three clusters, {six:,.0f} with
six. One decision for ten clusters in NumPy (median wall time): {decision:.2f} ms with its features, of which
the network itself {forward:.2f} ms.
"""

_TITLES: Final = {
    "single3": "Single-task, 3 clusters, noise, reallocation costs half a step (`single3`)",
    "syn3": "Multi-task, 3 clusters (`syn3`)",
    "hetero6": "Multi-task, 6 unequal clusters (`hetero6`)",
    "testbed3": "Kinds of the test-bed's shape, corrected mode (`testbed3`)",
}
