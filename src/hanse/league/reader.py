"""Reader of the data of the league file: its records, or the problems with the path of each field.

Nothing is guessed: an error names the allowed values.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from hanse.core.config import NodeConfig, Timings
from hanse.league.backend_kinds import BACKENDS
from hanse.league.backend_reader import backend_reader
from hanse.league.config import (
    LIVE_TIMINGS,
    BackendEntry,
    BrokerEntry,
    ClusterEntry,
    LeagueConfig,
    PolicyConfig,
    RunnerEntry,
)
from hanse.league.device_reader import check_shared_devices, count_devices, read_devices
from hanse.league.fields import (
    BROKER_FIELDS,
    CLUSTER_FIELDS,
    CLUSTERS_MAX,
    LEAGUE_FIELDS,
    NODE_FIELDS,
    NODES_MAX,
    POLICIES,
    POLICY_FIELDS,
    RUNNER_FIELDS,
    RUNNERS_MAX,
)
from hanse.league.value_readers import (
    read_host,
    read_listen_address,
    read_member_name,
    read_name,
    registry_reader,
)
from hanse.model.constraints import Value
from hanse.model.field_descriptions import names_of
from hanse.model.field_reader import FieldReader, read_flag, read_text
from hanse.model.ids import BROKER_NUMBER_MAX
from hanse.model.job_validation import suggest_spelling
from hanse.model.problem import Problem, ProblemList, describe_value, printable_name
from hanse.model.quantities import parse_bytes, parse_cpus, parse_duration, parse_whole
from hanse.model.resources import CUSTOM_KINDS_MAX, Resources

T = TypeVar("T")
ReadEntry = Callable[[object, str, ProblemList], T | None]


def league_from_data(data: object) -> LeagueConfig | tuple[Problem, ...]:
    """Return the league that decoded YAML describes, or its problems."""
    problems = ProblemList()
    fields = FieldReader.from_value(data, "", names_of(LEAGUE_FIELDS), problems)
    if fields is None:
        return problems.to_list()
    league = LeagueConfig(
        name=fields.read("league", read_name, "local"),
        brokers=_read_entries(fields, "brokers", _read_broker, BROKER_NUMBER_MAX),
        clusters=_read_entries(fields, "clusters", _read_cluster, CLUSTERS_MAX),
        timings=_read_timings(fields),
        policy=_read_policies(fields),
        version=fields.read("version", parse_whole, 0),
        joined=fields.read("joined", _read_joined, ()),
        drained=fields.read("drained", _read_drained, ()),
    )
    if not problems:
        _check_names(league, problems)
        _check_drained(league, problems)
    return problems.to_list() or league


def _read_joined(value: object, path: str) -> tuple[tuple[str, int], ...] | Problem:
    """Read the versions in which members joined."""
    if isinstance(value, Mapping) and all(
        isinstance(name, str) and type(version) is int and version > 0 for name, version in value.items()
    ):
        return tuple(value.items())
    return Problem(path, "must be names of members with the version in which each joined, as {south: 2}")


def _read_drained(value: object, path: str) -> tuple[str, ...] | Problem:
    """Read the names of the clusters that were drained when they retired."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    return Problem(path, "must be a list of retired clusters, as [south]")


def _check_drained(league: LeagueConfig, problems: ProblemList) -> None:
    """Check that only retired clusters count as drained."""
    retired = [entry.name for entry in league.clusters if entry.retired]
    for name in league.drained:
        if name not in retired:
            problems.add("drained", f"{name!r} is not a cluster that has retired")


def _check_names(league: LeagueConfig, problems: ProblemList) -> None:
    """Check that no two members have the same name: names are addresses."""
    seen: dict[str, None] = {}
    for name in league.members():
        if name in seen:
            problems.add("", f"two members are called {name!r}; a name may be used once")
        seen[name] = None


def _read_entries(
    fields: FieldReader, key: str, read: ReadEntry[T], count_max: int, count_min: int = 1
) -> tuple[T, ...]:
    value = fields.raw_value(key)
    if value is None and not count_min:
        return ()
    path = fields.path_of(key)
    if not isinstance(value, list) or not count_min <= len(value) <= count_max:
        many = f"a list of {len(value)}" if isinstance(value, list) else describe_value(value)
        fields.problems.add(path, f"this is a list of {count_min} to {count_max} entries, not {many}")
        return ()
    entries = [read(item, f"{path}[{index}]", fields.problems) for index, item in enumerate(value)]
    return tuple(entry for entry in entries if entry is not None)


def _read_broker(value: object, path: str, problems: ProblemList) -> BrokerEntry | None:
    fields = FieldReader.from_value(value, path, names_of(BROKER_FIELDS), problems)
    if fields is None:
        return None
    return BrokerEntry(
        read_member_name(fields),
        read_listen_address(fields, "address"),
        read_listen_address(fields, "door"),
        fields.read("retired", read_flag, False),
    )


def _read_runner(value: object, path: str, problems: ProblemList) -> RunnerEntry | None:
    fields = FieldReader.from_value(value, path, names_of(RUNNER_FIELDS), problems)
    if fields is None:
        return None
    return RunnerEntry(
        read_member_name(fields),
        read_listen_address(fields, "address"),
        read_listen_address(fields, "door"),
    )


def _read_cluster(value: object, path: str, problems: ProblemList) -> ClusterEntry | None:
    fields = FieldReader.from_value(value, path, names_of(CLUSTER_FIELDS), problems)
    if fields is None:
        return None
    name = read_member_name(fields)
    runners = _read_entries(fields, "runners", _read_runner, RUNNERS_MAX, count_min=0)
    cluster = ClusterEntry(
        name=name,
        address=read_listen_address(fields, "address"),
        door=read_listen_address(fields, "door"),
        nodes=(),
        backend=fields.read("backend", backend_reader(problems), BackendEntry()),
        reserve=fields.read("reserve", parse_whole, 0),
        runners=runners,
        retired=fields.read("retired", read_flag, False),
    )
    names = {cluster.own_runner: None, **{runner.name: None for runner in runners}}
    nodes_min = 0 if BACKENDS.get(cluster.backend.kind).discovers_nodes else 1
    groups = _read_entries(
        fields, "nodes", lambda item, at, found: _read_nodes(item, at, found, names), NODES_MAX, nodes_min
    )
    nodes = tuple(node for group in groups for node in group)
    if len(nodes) > NODES_MAX:
        problems.add(fields.path_of("nodes"), f"a cluster has at most {NODES_MAX} nodes, not {len(nodes)}")
    if cluster.reserve > len(nodes):
        problems.add(fields.path_of("reserve"), f"there are only {len(nodes)} nodes to keep back")
    check_shared_devices(nodes, fields.path_of("nodes"), problems)
    return msgspec.structs.replace(cluster, nodes=nodes)


def _read_nodes(
    value: object, path: str, problems: ProblemList, runners: Mapping[str, None]
) -> tuple[NodeConfig, ...] | None:
    """Read one entry of ``nodes``: a number of equal nodes."""
    fields = FieldReader.from_value(value, path, names_of(NODE_FIELDS), problems)
    if fields is None:
        return None
    count = fields.read("count", parse_whole, 1)
    if not 1 <= count <= NODES_MAX:
        problems.add(fields.path_of("count"), f"this is 1 to {NODES_MAX}, not {count}")
        count = 1
    runner = fields.read("runner", read_text, next(iter(runners)))
    if runner not in runners:
        hint = suggest_spelling(runner, tuple(runners)) or f"; there are: {', '.join(runners)}"
        problems.add(fields.path_of("runner"), f"the cluster has no runner {describe_value(runner)}{hint}")
    capacity = Resources(
        cpu=fields.read("cpus", parse_cpus, 1_000),
        memory=fields.read("memory", parse_bytes, 1 << 30),
        gpu=fields.read("gpus", parse_whole, 0),
        custom=fields.read("resources", _read_custom, ()),
    )
    nothing: tuple[tuple[str, Value], ...] = ()
    attributes = fields.read("attributes", _read_attributes, nothing)
    host = fields.read("address", read_host, "")
    devices = read_devices(fields)
    capacity = count_devices(capacity, devices, fields, count)
    return (NodeConfig(capacity, attributes, runner, host, devices),) * count


def _read_custom(value: object, field: str) -> tuple[tuple[str, int], ...] | Problem:
    if not isinstance(value, Mapping) or len(value) > CUSTOM_KINDS_MAX:
        return Problem(field, f"this is a mapping of at most {CUSTOM_KINDS_MAX} names to whole numbers")
    amounts: list[tuple[str, int]] = []
    for name, amount in value.items():
        if not isinstance(name, str):
            return Problem(field, f"a resource's name is a word, not {describe_value(name)}")
        number = parse_whole(amount, f"{field}.{printable_name(name)}")
        if isinstance(number, Problem):
            return number
        if number:
            amounts.append((name, number))
    return tuple(sorted(amounts))


def _read_attributes(value: object, field: str) -> tuple[tuple[str, Value], ...] | Problem:
    if not isinstance(value, Mapping):
        return Problem(field, f"this is a mapping such as {{zone: a}}, not {describe_value(value)}")
    pairs: list[tuple[str, Value]] = []
    for name, item in value.items():
        if not isinstance(name, str):
            return Problem(field, f"an attribute's name is a word, not {describe_value(name)}")
        if isinstance(item, float) or not isinstance(item, str | int | bool):
            return Problem(
                f"{field}.{printable_name(name)}",
                f"this is a text, a whole number or true, not {describe_value(item)}",
            )
        pairs.append((name, item))
    return tuple(sorted(pairs))


def _read_timings(fields: FieldReader) -> Timings:
    value = fields.raw_value("timings")
    if value is None:
        return LIVE_TIMINGS
    known = tuple(Timings.__struct_fields__)
    given_fields = FieldReader.from_value(value, "timings", known, fields.problems)
    if given_fields is None:
        return LIVE_TIMINGS
    chosen = {name: given_fields.read(name, parse_duration, getattr(LIVE_TIMINGS, name)) for name in known}
    return Timings(**chosen)


def _read_policies(fields: FieldReader) -> PolicyConfig:
    value = fields.raw_value("policy")
    if value is None:
        return PolicyConfig()
    policy = FieldReader.from_value(value, "policy", names_of(POLICY_FIELDS), fields.problems)
    if policy is None:
        return PolicyConfig()
    return PolicyConfig(
        **{name: policy.read(name, registry_reader(registry), getattr(PolicyConfig(), name))
           for name, registry in POLICIES.items()}
    )  # fmt: skip
