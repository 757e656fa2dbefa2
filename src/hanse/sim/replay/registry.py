"""Registry of policies by name. A policy is a callable ``(workload, settings, progress=None) ->
ReplayOutcome`` with a few facts."""

from collections.abc import Callable
from typing import Final

import msgspec

from hanse.sim.baselines.task_level.central import central, ideal, independent
from hanse.sim.baselines.task_level.eagle import eagle
from hanse.sim.baselines.task_level.free_count_sharing import load_sharing
from hanse.sim.baselines.task_level.hawk import hawk
from hanse.sim.baselines.task_level.megha import megha, megha_repaired
from hanse.sim.baselines.task_level.megha_log_reproduction import megha_logged
from hanse.sim.baselines.task_level.pigeon import pigeon
from hanse.sim.baselines.task_level.sparrow import sparrow
from hanse.sim.replay.compiled import find_settings_objection
from hanse.sim.replay.fault_file import read_faults
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.league_setup import find_objection
from hanse.sim.replay.queue_order import find_literature_objection
from hanse.sim.replay.run_records import (
    Progress,
    ReplayError,
    ReplayOutcome,
    ReplaySettings,
    ReplayWorkload,
)
from hanse.sim.replay.whole_job_policies import batch_names

PolicyFunction = Callable[[ReplayWorkload, ReplaySettings, Progress | None], ReplayOutcome]


class ReplayPolicy(msgspec.Struct, frozen=True):
    """One policy of the registry."""

    name: str
    run: PolicyFunction
    about: str
    own_order: str = ""
    """Name of its own order in results; empty: it follows the order of the settings."""
    start_messages: int = 2
    """One-way delays between a job's arrival and the earliest start of a task."""
    faults: bool = False
    """True if it supports ``ReplaySettings.faults``."""
    objection: Callable[[ReplaySettings], str] | None = None
    """Function that returns why it cannot run with some settings, in one sentence; empty if it can."""

    def __call__(
        self, workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
    ) -> ReplayOutcome:
        """Run the policy."""
        return self.run(workload, settings, progress)

    def order(self, settings: ReplaySettings) -> str:
        """Return the queue order of a run with these settings."""
        return self.own_order or settings.order


def _find_hanse_objection(settings: ReplaySettings) -> str:
    if settings.faults:
        read_faults(settings)  # raises if the file is invalid
    problem = find_objection(settings)
    if not problem and settings.engine == "compiled":
        why = find_settings_objection(settings)
        problem = f"the compiled league cannot run this ({why}): use --engine machines" if why else ""
    return problem


def _by_any_static_order(name: str, run: PolicyFunction, about: str, start_messages: int) -> ReplayPolicy:
    """Return a scheduler of the literature that follows the order of the settings."""
    return ReplayPolicy(name, run, about, start_messages=start_messages, objection=find_literature_objection)


_BUILT_IN: Final = (
    ReplayPolicy("sparrow", sparrow, "batch sampling, two probes a task, late binding", "fifo", 3),
    ReplayPolicy("hawk", hawk, "long jobs central, short ones probed, idle nodes steal", "fifo", 3),
    ReplayPolicy("eagle", eagle, "long jobs central, short ones avoid them; sticky probes", "least-work", 3),
    ReplayPolicy(
        "pigeon", pigeon, "jobs split over groups with reserved nodes for short tasks", "short-first", 2
    ),
    ReplayPolicy("megha", megha, "optimistic claims on stale views, as published (megha3.0)", "fifo", 2),
    ReplayPolicy(
        "megha-repaired",
        megha_repaired,
        "the same with its defects repaired",
        "",
        2,
        objection=find_literature_objection,
    ),
    ReplayPolicy(
        "megha-logged", megha_logged, "as in its authors' logs, defects and all", "fewest-remaining", 2
    ),
    ReplayPolicy(
        "independent",
        independent,
        "every broker its own nodes, no communication",
        "",
        2,
        objection=find_literature_objection,
    ),
    ReplayPolicy(
        "shared",
        load_sharing,
        "every broker its own nodes, gossip of free counts",
        "",
        2,
        objection=find_literature_objection,
    ),
    ReplayPolicy(
        "central",
        central,
        "the oracle: one queue that knows everything",
        "",
        3,
        objection=find_literature_objection,
    ),
    ReplayPolicy(
        "ideal",
        ideal,
        "the same without messages: a bound, not a scheduler",
        "",
        3,
        objection=find_literature_objection,
    ),
    ReplayPolicy(
        "hanse",
        run_hanse,
        "the real brokers, wardens and runners: claims, demand, grants",
        faults=True,
        objection=_find_hanse_objection,
    ),
)
_POLICIES: dict[str, ReplayPolicy] = {policy.name: policy for policy in _BUILT_IN}


def policies() -> dict[str, ReplayPolicy]:
    """Return all policies by name, in the order of the tables."""
    return dict(_POLICIES)


def register(policy: ReplayPolicy) -> None:
    """Add a policy with a new name."""
    assert policy.name not in _POLICIES, policy.name
    _POLICIES[policy.name] = policy


def select_policies(names: list[str], settings: ReplaySettings) -> list[ReplayPolicy]:
    """Return the policies of these names; raise if one is unknown or cannot run with the settings."""
    known = policies()
    unknown = [name for name in names if name not in known]
    whole = [name for name in unknown if name in batch_names()]
    if whole:
        raise ReplayError(
            f"{', '.join(whole)} runs whole jobs, which cannot stand in one table or sweep with policies that"
            " run single tasks: give such policies alone to hanse replay"
        )
    if unknown or not names:
        raise ReplayError(
            f"unknown policy {', '.join(unknown) or '(none given)'}; known: {', '.join(known)};"
            f" for whole jobs: {', '.join(batch_names())}"
        )
    if settings.faults:
        without = [name for name in names if not known[name].faults]
        if without:
            able = [name for name, policy in known.items() if policy.faults]
            raise ReplayError(
                f"faults cannot be injected into {', '.join(without)}: the schedulers of the literature have"
                " no recovery to measure; policies that support faults:"
                f" {', '.join(able) or 'none in this installation'}"
            )
    selected = [known[name] for name in names]
    objections = [policy.objection(settings) for policy in selected if policy.objection is not None]
    problem = settings.find_problem() or next((text for text in objections if text), "")
    if problem:
        raise ReplayError(problem)
    return selected
