"""Results page of edge learning: measured in one run, written as Markdown."""

from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.evaluation import network_evaluation as judging
from hanse.learning.edge.evaluation.page_measurements import (
    FIRST_SEED,
    SECTION_POLICIES,
    PrintLine,
    coordination_table,
    inference_ms,
    policy_section,
    sub_steps_per_second,
)
from hanse.learning.edge.evaluation.page_text import (
    ABLATED_AT,
    ABLATIONS,
    COORDINATION,
    DURATIONS,
    FINDINGS,
    GUARD,
    INTRODUCTION,
    LEGEND,
    LIMITS,
    SEEDS,
    SPEED,
    TITLES,
)
from hanse.learning.edge.evaluation.policy_evaluation import setting_by_name
from hanse.learning.edge.network import network_file
from hanse.learning.edge.network.network import EdgeNetwork
from hanse.learning.edge.players.online_durations import learning_curve


def with_lean(network: EdgeNetwork, cpus: float, gpus: float) -> EdgeNetwork:
    """Return the network with another bias towards the rule's size, per CPU and per GPU."""
    lean = np.array([cpus, gpus, *network.weights["lean"][2:]], dtype=np.float32)
    return msgspec.structs.replace(network, weights={**network.weights, "lean": lean})


class EdgeReport:
    """Data of the page's sections, each computed when first needed."""

    def __init__(self, seeds: int, folder: Path, say: PrintLine) -> None:
        """Load the shipped network. ``folder`` holds the trained files of all seeds and ablations."""
        loaded = network_file.load_network(network_file.shipped_path())
        assert not isinstance(loaded, str), loaded
        self.network, self.about = loaded
        self.seeds, self.folder, self.say = seeds, folder, say

    @cached_property
    def cases(self) -> list[judging.EvaluationCase]:
        """Cases in which trained networks are judged."""
        return judging.evaluation_cases()

    def durations_section(self) -> str:
        """Return the section on the rule with learned durations."""
        curve = learning_curve(setting_by_name("syn3"), 8, self.seeds, FIRST_SEED + 500_000).mean(axis=0)
        self.say(f"durations learned: {curve.round(2)}")
        learned = ", ".join(f"{mean:.2f}" for mean in curve)
        return DURATIONS.format(seeds=self.seeds, curve=learned, later=curve[4:].mean())

    def shipped_section(self) -> str:
        """Return the section on the network that comes with the package."""
        summary = f"Recipe: `{self.about.recipe}`.\n\nTraining said of itself: `{self.about.measured}`.\n"
        return "\n".join([summary, judging.generalisation_table(self.network, self.cases, self.say), LIMITS])

    def training_seeds_section(self) -> str:
        """Return the section on all training seeds."""
        return "\n".join([SEEDS, judging.training_seeds_section(self.folder, self.cases, self.say)])

    def ablations_section(self) -> str:
        """Return the section on all ablations."""
        chosen = [at for at in self.cases if at.label in ABLATED_AT]
        return "\n".join([ABLATIONS, judging.ablations_table(self.folder, chosen, self.say)])

    def guard_section(self) -> str:
        """Return the section on good and bad networks behind the guard."""
        found = judging.load_all(self.folder, "ablation-scratch")
        scratch = [(f"ablation `{name}`", network) for name, network, _ in found]
        unbiased, ruined = with_lean(self.network, 0.0, 0.0), with_lean(self.network, 9.0, 9.0)
        bad = [("shipped, CPUs its own", unbiased), ("ruined", ruined)]
        return "\n".join([GUARD, judging.guard_table([("shipped", self.network), *scratch, *bad], self.say)])

    def coordination_section(self) -> str:
        """Return the section on ways of coordination."""
        return "\n".join([COORDINATION, coordination_table(self.network, self.seeds, self.say)])

    def speed_section(self) -> str:
        """Return the section on the speed of the environment and the network."""
        decision, forward = inference_ms(self.network)
        three, six = (sub_steps_per_second(setting_by_name(name), 512) for name in ("syn3", "hetero6"))
        return SPEED.format(three=three, six=six, decision=decision, forward=forward)

    def sections(self) -> dict[str, tuple[str, Callable[[], str]]]:
        """Return name, heading and function of every section, in the page's order."""

        def section_of_policies(name: str) -> tuple[str, Callable[[], str]]:
            legend = f"\n{LEGEND}" if name == "testbed3" else ""
            return TITLES[name], lambda: policy_section(name, self.seeds, self.say) + legend

        return {
            "found": ("What we found in the published comparison", lambda: FINDINGS),
            **{name: section_of_policies(name) for name in TITLES},
            "durations": ("Durations learned from nothing", self.durations_section),
            "shipped": ("The shipped network against the rule", self.shipped_section),
            "training": ("Training seeds", self.training_seeds_section),
            "ablations": ("Ablations", self.ablations_section),
            "guard": ("The guard", self.guard_section),
            "coordination": ("Ways of coordinating (syn3)", self.coordination_section),
            "speed": ("Speed", self.speed_section),
        }


SECTIONS: Final = (
    "found", *SECTION_POLICIES, "durations", "shipped", "training", "ablations", "guard", "coordination",
    "speed",
)  # fmt: skip
"""Names of the page's sections, in order."""


def page(seeds: int, folder: Path, say: PrintLine, wanted: Collection[str] = (), old: str = "") -> str:
    """Return the whole page.

    With ``wanted`` sections only those are computed, and the others are those of the ``old`` page where it
    has them.
    """
    _, *parts = f"\n{old}".split("\n## ")
    kept = {heading: text for heading, _, text in (part.partition("\n\n") for part in parts)}
    written = ["# Edge learning: results\n", INTRODUCTION.format(seeds=seeds)]
    for name, (heading, make) in EdgeReport(seeds, folder, say).sections().items():
        keep = wanted and name not in wanted and heading in kept
        written.append(f"## {heading}\n\n{kept[heading].strip() if keep else make().strip()}\n")
    return "\n".join(written)
