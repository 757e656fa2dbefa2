"""Policies of the registry that reckon with finish time: the rule, its variants, the oracle and the bound."""

from collections.abc import Sequence
from typing import Final

from hanse.sim.worlds.central import CentralRun
from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.compiled.run import CompiledChoice, run_compiled_policy
from hanse.sim.worlds.earliest_finish.bound_policy import find_bound
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory
from hanse.sim.worlds.earliest_finish.finish_run import make_history, run_earliest_finish, warm_up
from hanse.sim.worlds.earliest_finish.finish_settings import FinishSettings
from hanse.sim.worlds.earliest_finish.oracle_policy import OraclePolicy, OracleSettings
from hanse.sim.worlds.job_shapes import job_shapes, stay_clusters
from hanse.sim.worlds.policy_records import JobsEnded, WorldPolicy, WorldRefusalError, WorldRunSettings

ORDER: Final = "shortest-work"


def _check_holdable(world: WorldColumns, work: WorkColumns) -> None:
    problem = stay_clusters(world, work)[1]
    if problem:
        raise WorldRefusalError(problem)


def _earliest_finish(name: str, about: str, chosen: FinishSettings) -> WorldPolicy:
    """Return the rule with these settings."""

    def run(
        world: WorldColumns, work: WorkColumns, settings: WorldRunSettings, progress: JobsEnded | None
    ) -> WorldOutcome:
        _check_holdable(world, work)
        history = settings.history if settings.history is not None else make_history(world)
        outcome, _ = run_earliest_finish(
            world, work, chosen, history, settings.seed, settings.compiled, progress
        )
        return outcome

    def learn(world: WorldColumns, works: Sequence[WorkColumns]) -> FinishHistory:
        for work in works:
            _check_holdable(world, work)
        return warm_up(world, works, chosen)

    order = ORDER if chosen.is_shortest_first else "fifo"
    return WorldPolicy(name, about, run, order, learn, is_variant=name != "earliest-finish")


def _oracle(name: str, about: str, chosen: OracleSettings) -> WorldPolicy:
    def run(
        world: WorldColumns, work: WorkColumns, settings: WorldRunSettings, progress: JobsEnded | None
    ) -> WorldOutcome:
        _check_holdable(world, work)
        shape = job_shapes(work, None)
        if settings.compiled and not loader.LOAD_PROBLEM:
            choice = CompiledChoice("oracle", "fifo", settings.seed, shape, numbers=chosen.numbers())
            return run_compiled_policy(world, work, choice, progress)
        twin = CentralRun(world, work, lambda view: OraclePolicy(view, chosen), shape.tolist(), "fifo")
        twin.play()
        return twin.outcome()

    return WorldPolicy(name, about, run, ORDER, is_variant=name != "oracle")


def _run_bound(
    world: WorldColumns, work: WorkColumns, _settings: WorldRunSettings, _progress: JobsEnded | None
) -> WorldOutcome:
    _check_holdable(world, work)
    return find_bound(world, work)


FINISH_POLICIES: Final = (
    _earliest_finish(
        "earliest-finish",
        "central: the node where a task is expected to finish first, learned from ended jobs; waits for it",
        FinishSettings(),
    ),
    _earliest_finish(
        "earliest-finish-prior",
        "the same, starting from the published speeds of the classes",
        FinishSettings(constants="prior"),
    ),
    _earliest_finish(
        "earliest-finish-class",
        "the same, with the published speeds of the classes alone: no kind of job has its own",
        FinishSettings(constants="only"),
    ),
    _earliest_finish(
        "earliest-finish-blind",
        "the same, without learning how run times follow the size of the input",
        FinishSettings(uses_sizes=False),
    ),
    _earliest_finish(
        "earliest-finish-far", "the same, as if data were everywhere", FinishSettings(uses_data=False)
    ),
    _earliest_finish(
        "earliest-finish-alone",
        "the same, as if tasks had no neighbours",
        FinishSettings(learns_crowding=False, charge=0.0),
    ),
    _earliest_finish(
        "earliest-finish-own",
        "the same, without a charge for what the neighbours lose",
        FinishSettings(charge=0.0),
    ),
    _earliest_finish(
        "earliest-finish-go", "the same, without waiting for a better node", FinishSettings(wait_ratio=0.0)
    ),
    _earliest_finish(
        "earliest-finish-fifo", "the same, in order of arrival", FinishSettings(is_shortest_first=False)
    ),
    _oracle(
        "oracle",
        "central: earliest finish with the truth about every task, but not about the future",
        OracleSettings(),
    ),
    _oracle("oracle-go", "the oracle, without waiting for a better node", OracleSettings(wait_ratio=0.0)),
    WorldPolicy(
        "bound",
        "computed: every job alone on the best nodes, its input in the rack",
        _run_bound,
        is_computed=True,
    ),
)
"""In the order in which they are listed."""
