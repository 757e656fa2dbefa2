"""Checks of a world as a whole: names that refer to others, sizes that fit, figures that are complete."""

from collections.abc import Iterable, Sequence

from hanse.model.job_validation import suggest_spelling
from hanse.model.problem import ProblemList
from hanse.sim.worlds.columns import NODE_CLASSES_MAX
from hanse.sim.worlds.drawing.job_shapes import allowed_classes
from hanse.sim.worlds.fields.field_kinds import NODES_MAX
from hanse.sim.worlds.round_trips import PLACES
from hanse.sim.worlds.world import World


def find_world_problems(world: World, problems: ProblemList) -> None:
    """Add the problems of a world whose fields are valid by themselves."""
    kinds = [kind.name for kind in world.work_kinds]
    classes = [found.name for found in world.node_classes]
    for path, names in (
        ("work_kinds", kinds),
        ("node_classes", classes),
        ("clusters", [cluster.name for cluster in world.clusters]),
    ):
        _check_unique(path, names, problems)
    if len(classes) > NODE_CLASSES_MAX:
        problems.add(
            "node_classes", f"a world has at most {NODE_CLASSES_MAX} node classes, not {len(classes)}"
        )
    for at, found in enumerate(world.node_classes):
        _check_known(f"node_classes[{at}].speed", found.speed, kinds, "kind of work", problems)
        if found.gpus and not found.gpu_kind:
            problems.add(f"node_classes[{at}].gpu_kind", f"{found.name} has GPUs, so it says of which kind")
    for at, cluster in enumerate(world.clusters):
        path = f"clusters[{at}]"
        names = [run.node_class for run in cluster.nodes]
        _check_known(f"{path}.nodes", names, classes, "node class", problems)
        _check_known(f"{path}.work_shares", cluster.work_shares, kinds, "kind of work", problems)
        if cluster.work_shares and not sum(cluster.work_shares.values()) > 0:
            problems.add(f"{path}.work_shares", "at least one share is above 0")
    if not sum(kind.share for kind in world.work_kinds) > 0:
        problems.add("work_kinds", "at least one kind has a share above 0")
    if world.node_count > NODES_MAX:
        problems.add("clusters", f"a world has at most {NODES_MAX:,} nodes, not {world.node_count:,}")
    _check_work(world, kinds, problems)
    _check_round_trips(world, problems)
    if not problems:
        _check_room(world, problems)


def _check_unique(path: str, names: Sequence[str], problems: ProblemList) -> None:
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        if name in seen:
            problems.add(f"{path}[{at}].name", f"{name!r} is the name of {path}[{seen[name]}], too")
        seen.setdefault(name, at)


def _check_known(
    path: str, names: Iterable[str], known: Sequence[str], noun: str, problems: ProblemList
) -> None:
    for name in names:
        if name not in known:
            hint = suggest_spelling(name, known) or f"; there are: {', '.join(known)}"
            problems.add(path, f"there is no {noun} {name!r}{hint}")


def _check_work(world: World, kinds: Sequence[str], problems: ProblemList) -> None:
    rules = world.work
    if rules.task_least > rules.task_most:
        problems.add("work.task_least", "the least work of a task is more than the most")
    if rules.deadlines.slack_least > rules.deadlines.slack_most:
        problems.add("work.deadlines.slack_least", "the least slack is more than the most")
    _check_known("work.gangs.kinds", rules.gangs.kinds, kinds, "kind of work", problems)


def _check_round_trips(world: World, problems: ProblemList) -> None:
    trips, path = world.network.round_trips, "network.round_trips"
    regions = list(dict.fromkeys(cluster.region_code for cluster in world.clusters))
    if not trips.regions:
        if trips.matrix:
            problems.add(f"{path}.regions", "this lists the regions of the table of milliseconds")
        unknown = [code for code in regions if code not in PLACES and len(world.clusters) > 1]
        if unknown:
            problems.add(
                path,
                f"the place of the region {unknown[0]!r} is unknown, so its round trips must be written "
                f"here; known are {', '.join(PLACES)}",
            )
        return
    _check_known(f"{path}.regions", regions, trips.regions, "region", problems)
    count = len(trips.regions)
    if len(dict.fromkeys(trips.regions)) != count:
        problems.add(f"{path}.regions", "every region stands here once")
    if len(trips.matrix) != count or any(len(row) != count for row in trips.matrix):
        problems.add(f"{path}.milliseconds", f"this has {count} rows of {count} numbers, one for each region")
    elif any(not row[to] for at, row in enumerate(trips.matrix) for to in range(count) if to != at):
        problems.add(f"{path}.milliseconds", "a round trip between two regions is more than 0")


def _check_room(world: World, problems: ProblemList) -> None:
    """Check that every kind of work fits a node class that has nodes."""
    for at, kind in enumerate(world.work_kinds):
        allowed = [world.node_classes[number] for number in allowed_classes(world, kind)]
        if not allowed:
            problems.add(
                f"work_kinds[{at}].requires", f"no node satisfies {kind.requires!r}; change it, or add nodes"
            )
            continue
        for cores in kind.cores:
            fits = any(
                node.cores >= cores and node.memory >= cores * kind.memory_per_core and node.gpus >= kind.gpus
                for node in allowed
            )
            if not fits:
                problems.add(
                    f"work_kinds[{at}].cores",
                    f"a task of {kind.name} with {cores} cores, {cores * kind.memory_per_core} bytes and "
                    f"{kind.gpus} GPUs fits no node that it may use",
                )
