"""Registry of the policies that run in worlds, by name."""

from collections.abc import Callable
from typing import Final

import msgspec

from hanse.sim.worlds.central import ORDERS, CentralRun
from hanse.sim.worlds.columns import SmallInts, WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.compiled.run import CompiledChoice, run_compiled_policy
from hanse.sim.worlds.earliest_finish.finish_policies import FINISH_POLICIES
from hanse.sim.worlds.job_shapes import job_shapes, stay_clusters
from hanse.sim.worlds.league.league_setup import WorldLeagueSettings
from hanse.sim.worlds.league.world_shell import run_world_league
from hanse.sim.worlds.policies import (
    BestFitCentral,
    GreedyCentral,
    IndependentClusters,
    LeastLoadedCentral,
    PowerOfTwo,
)
from hanse.sim.worlds.policy_records import JobsEnded, WorldPolicy, WorldRefusalError, WorldRunSettings
from hanse.sim.worlds.policy_view import CentralPolicy, PolicyView


def _simple(
    name: str, about: str, make: Callable[[PolicyView, SmallInts, int], CentralPolicy], stays: bool = False
) -> WorldPolicy:
    """Return a policy of policies.py. ``stays``: it keeps jobs in their clusters."""

    def run(
        world: WorldColumns, work: WorkColumns, settings: WorldRunSettings, progress: JobsEnded | None
    ) -> WorldOutcome:
        cluster, problem = stay_clusters(world, work)
        if problem:
            raise WorldRefusalError(problem)
        if settings.order not in ORDERS:
            raise WorldRefusalError(f"unknown order {settings.order}; known: {', '.join(ORDERS)}")
        shape = job_shapes(work, cluster if stays else None)
        if settings.compiled and not loader.LOAD_PROBLEM:
            choice = CompiledChoice(name, settings.order, settings.seed, shape, arrays=(cluster,))
            return run_compiled_policy(world, work, choice, progress)
        twin = CentralRun(
            world, work, lambda view: make(view, cluster, settings.seed), shape.tolist(), settings.order
        )
        twin.play()
        return twin.outcome()

    return WorldPolicy(name, about, run)


def _league(name: str, about: str, policies: WorldLeagueSettings, own_order: str = "") -> WorldPolicy:
    """Return a league of the real machines with these policies."""

    def run(
        world: WorldColumns, work: WorkColumns, settings: WorldRunSettings, progress: JobsEnded | None
    ) -> WorldOutcome:
        _, problem = stay_clusters(world, work)
        if problem:
            raise WorldRefusalError(problem)
        league = msgspec.structs.replace(
            policies,
            order=own_order or settings.order,
            brokers=settings.brokers,
            delay_us=settings.delay_us,
            seed=settings.seed,
        )
        return run_world_league(world, work, league, settings.compiled and not loader.LOAD_PROBLEM, progress)

    return WorldPolicy(name, about, run, own_order)


_BUILT_IN: Final = (
    _simple(
        "independent",
        "every job in the cluster it was submitted to, on the least loaded node there",
        lambda view, cluster, _: IndependentClusters(view, cluster.tolist()),
        stays=True,
    ),
    _simple(
        "greedy",
        "central: a cluster with the data first, then the home, then the emptiest; tightest node there",
        lambda view, _, __: GreedyCentral(view),
    ),
    _simple("best-fit", "central: the node with least left over", lambda _, __, ___: BestFitCentral()),
    _simple(
        "least-loaded",
        "central: the node with the largest free share",
        lambda _, __, ___: LeastLoadedCentral(),
    ),
    _simple(
        "power-of-two", "central: the less loaded of two random nodes", lambda _, __, seed: PowerOfTwo(seed)
    ),
    *FINISH_POLICIES,
    _league(
        "hanse",
        "the real brokers and wardens, placing by estimated finish; what they know, they learn in the run",
        WorldLeagueSettings(),
        "shortest-work",
    ),
    _league(
        "hanse-default",
        "the same machines with the policies of a league that sets none",
        WorldLeagueSettings(placer="best-fit", cluster_ranker="rotate", node_ranker="first"),
    ),
)
_POLICIES: dict[str, WorldPolicy] = {policy.name: policy for policy in _BUILT_IN}


def world_policies() -> dict[str, WorldPolicy]:
    """Return all policies by name."""
    return dict(_POLICIES)


def register_world_policy(policy: WorldPolicy) -> None:
    """Add a policy with a new name."""
    assert policy.name not in _POLICIES, policy.name
    _POLICIES[policy.name] = policy


def select_world_policies(names: list[str]) -> list[WorldPolicy]:
    """Return the policies of these names; raise if one is unknown."""
    unknown = [name for name in names if name not in _POLICIES]
    if unknown or not names:
        raise WorldRefusalError(
            f"unknown policy {', '.join(unknown) or '(none given)'} for a world;"
            f" known: {', '.join(_POLICIES)}"
        )
    return [_POLICIES[name] for name in names]
