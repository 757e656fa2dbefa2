"""Reader and writer of the league file, the YAML file that every member reads.

``live.config.league_fields`` is the table of all fields; ``docs/reference/league-file.md`` is generated from
it. Addresses that are left out are chosen on this machine when the league is first started. An error names
the field's path and the allowed values; nothing is guessed.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from hanse.core.config import NodeConfig, Timings
from hanse.live.backends.process.task_users import UserRange
from hanse.live.backends.registry import BACKENDS
from hanse.live.config.league import (
    LIVE_TIMINGS,
    Address,
    BackendEntry,
    BrokerEntry,
    ClusterEntry,
    LeagueConfig,
    LeagueError,
    PolicyConfig,
    RunnerEntry,
)
from hanse.live.config.league_fields import (
    BACKEND_FIELDS,
    BROKER_FIELDS,
    CLUSTER_FIELDS,
    CLUSTERS_MAX,
    LEAGUE_FIELDS,
    LIMITS,
    NAME_CHARACTERS_MAX,
    NODE_FIELDS,
    NODES_MAX,
    POLICIES,
    POLICY_FIELDS,
    RUNNER_FIELDS,
    RUNNERS_MAX,
    SANDBOXES,
    USERS_FIELDS,
)
from hanse.model.constraints import Value
from hanse.model.field_reader import FieldReader, read_flag, read_integer, read_text
from hanse.model.form_fields import names_of
from hanse.model.ids import BROKER_NUMBER_MAX
from hanse.model.job_validation import suggest_spelling
from hanse.model.problem import Problem, ProblemList, describe_value, printable_name
from hanse.model.quantities import parse_bytes, parse_cpus, parse_duration, parse_whole
from hanse.model.resources import CUSTOM_KINDS_MAX, Resources
from hanse.registry import Registry
from hanse.security import atomic_files

FILE_BYTES_MAX: Final = 4 << 20
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Ten times as fast as the Python ones, where PyYAML has them; every member reads the file as it starts."""

T = TypeVar("T")
ReadEntry = Callable[[object, str, ProblemList], T | None]


def load(path: Path) -> LeagueConfig:
    """Read a league file; raise ``LeagueError`` with all its problems."""
    return parse(path.read_bytes(), str(path))


def parse(raw: bytes, name: str) -> LeagueConfig:
    """Return the league that a file's content describes; ``name`` is the file's name in errors."""
    if len(raw) > FILE_BYTES_MAX:
        raise LeagueError(f"{name} is larger than {FILE_BYTES_MAX} bytes")
    try:
        data = yaml.load(raw, _Loader)  # noqa: S506  a safe one
    except (yaml.YAMLError, RecursionError) as error:
        raise LeagueError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    league = league_from_data(data)
    if isinstance(league, LeagueConfig):
        return league
    lines = "\n".join(f"  {problem.field or 'the file'}: {problem.rule}" for problem in league)
    raise LeagueError(f"{name} does not describe a league:\n{lines}")


def store(path: Path, league: LeagueConfig) -> None:
    """Write a league file that ``load`` reads back to the same league."""
    atomic_files.replace(path, league_to_text(league).encode("utf-8"), atomic_files.PUBLIC)


def league_to_text(league: LeagueConfig) -> str:
    """Return the content of a league's file."""
    return yaml.dump(league_to_data(league), Dumper=_Dumper, sort_keys=False)


def league_from_data(data: object) -> LeagueConfig | tuple[Problem, ...]:
    """Return the league that decoded YAML describes, or its problems."""
    problems = ProblemList()
    fields = FieldReader.from_value(data, "", names_of(LEAGUE_FIELDS), problems)
    if fields is None:
        return problems.to_list()
    league = LeagueConfig(
        name=fields.read("league", _read_name, "local"),
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
        _read_member_name(fields),
        _read_listen_address(fields, "address"),
        _read_listen_address(fields, "door"),
        fields.read("retired", read_flag, False),
    )


def _read_runner(value: object, path: str, problems: ProblemList) -> RunnerEntry | None:
    fields = FieldReader.from_value(value, path, names_of(RUNNER_FIELDS), problems)
    if fields is None:
        return None
    return RunnerEntry(
        _read_member_name(fields),
        _read_listen_address(fields, "address"),
        _read_listen_address(fields, "door"),
    )


def _read_cluster(value: object, path: str, problems: ProblemList) -> ClusterEntry | None:
    fields = FieldReader.from_value(value, path, names_of(CLUSTER_FIELDS), problems)
    if fields is None:
        return None
    name = _read_member_name(fields)
    runners = _read_entries(fields, "runners", _read_runner, RUNNERS_MAX, count_min=0)
    cluster = ClusterEntry(
        name=name,
        address=_read_listen_address(fields, "address"),
        door=_read_listen_address(fields, "door"),
        nodes=(),
        backend=fields.read("backend", _backend_reader(problems), BackendEntry()),
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
    return (NodeConfig(capacity, attributes, runner),) * count


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


def _backend_reader(problems: ProblemList) -> Callable[[object, str], BackendEntry | Problem]:
    def read(value: object, path: str) -> BackendEntry | Problem:
        if isinstance(value, str):
            value = {"kind": value}
        named = value.get("kind") if isinstance(value, Mapping) else None
        is_usable = isinstance(named, str) and not BACKENDS.find_problem(named)
        kind = BACKENDS.get(str(named) if is_usable else BackendEntry().kind)
        known = (*names_of(BACKEND_FIELDS), *names_of(kind.fields))
        fields = FieldReader.from_value(value, path, known, problems)
        if fields is None:
            return BackendEntry()
        return BackendEntry(
            settings=kind.read(fields),
            kind=fields.read("kind", _registry_reader(BACKENDS), kind.name),
            sandbox=fields.read("sandbox", _choice_reader(SANDBOXES), "auto"),
            user=fields.read("user", read_text, ""),
            users=fields.read("users", _users_reader(problems), UserRange()),
            memory_default=fields.read("memory_default", parse_bytes, 0),
            output=fields.read("output", parse_bytes, BackendEntry().output),
            disk=fields.read("disk", parse_bytes, BackendEntry().disk),
            files=fields.read("files", parse_whole, BackendEntry().files),
            directory=fields.read("directory", _read_absolute_path, ""),
            limits=fields.read("limits", _choice_reader(LIMITS), "auto"),
        )

    return read


def _read_absolute_path(value: object, path: str) -> str | Problem:
    text = read_text(value, path)
    if isinstance(text, str) and not Path(text).is_absolute():
        return Problem(path, f"must be a path that begins with /, not {text!r}")
    return text


def _users_reader(problems: ProblemList) -> Callable[[object, str], UserRange | Problem]:
    def read(value: object, path: str) -> UserRange | Problem:
        fields = FieldReader.from_value(value, path, names_of(USERS_FIELDS), problems)
        if fields is None:
            return UserRange()
        default = UserRange()
        users = UserRange(
            fields.read("first", parse_whole, default.first), fields.read("count", parse_whole, default.count)
        )
        return Problem(path, users.problem) if users.problem else users

    return read


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
        **{name: policy.read(name, _registry_reader(registry), getattr(PolicyConfig(), name))
           for name, registry in POLICIES.items()}
    )  # fmt: skip


def _choice_reader(words: tuple[str, ...]) -> Callable[[object, str], str | Problem]:
    def read(value: object, field: str) -> str | Problem:
        if isinstance(value, str) and value in words:
            return value
        return Problem(field, f"this is one of {', '.join(words)}, not {describe_value(value)}")

    return read


def _registry_reader(registry: Registry[Any]) -> Callable[[object, str], str | Problem]:
    """Return a reader for the name of something that can be used here: our own, or of an installed
    package."""

    def read(value: object, field: str) -> str | Problem:
        if not isinstance(value, str) or value not in registry:
            rule = f"this is one of {', '.join(registry.names())}, not {describe_value(value)}"
            return Problem(field, f"{rule}{registry.hint}")
        problem = registry.find_problem(value)
        return Problem(field, problem) if problem else value

    return read


def _read_member_name(fields: FieldReader) -> str:
    if not fields.has_field("name"):
        fields.problems.add(fields.path_of("name"), "every member has a name; it is missing")
    return fields.read("name", _read_name, "")


def _read_name(value: object, field: str) -> str | Problem:
    if isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS_MAX and set(value) <= _NAME_CHARACTERS:
        return value
    rule = f"a name is 1 to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' or '.'"
    return Problem(field, f"{rule}, not {describe_value(value)}")


def _read_listen_address(fields: FieldReader, key: str) -> Address:
    return fields.read(key, _read_address, Address())


def _read_address(value: object, field: str) -> Address | Problem:
    problem = Problem(field, f'this is "host:port", such as "10.0.0.1:7401", not {describe_value(value)}')
    if not isinstance(value, str):
        return problem
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or len(port) > 5:
        return problem
    number = read_integer(int(port), field)
    return Address(host, int(port)) if isinstance(number, int) and number <= 65_535 else problem


# --- writing ----------------------------------------------------------------------------------------------


def league_to_data(league: LeagueConfig) -> dict[str, object]:
    """Return the league as the data of its file."""
    changed = {
        name: f"{value}us"
        for name in Timings.__struct_fields__
        if (value := getattr(league.timings, name)) != getattr(LIVE_TIMINGS, name)
    }
    return {
        "league": league.name,
        **({"version": league.version} if league.version else {}),
        **({"joined": dict(league.joined)} if league.joined else {}),
        **({"drained": list(league.drained)} if league.drained else {}),
        **({"timings": changed} if changed else {}),
        "policy": msgspec.to_builtins(league.policy),
        "brokers": [
            {
                "name": entry.name,
                "address": str(entry.address),
                "door": str(entry.door),
                **({"retired": True} if entry.retired else {}),
            }
            for entry in league.brokers
        ],
        "clusters": [_cluster_to_data(entry) for entry in league.clusters],
    }


def _cluster_to_data(cluster: ClusterEntry) -> dict[str, object]:
    backend = {
        name: msgspec.to_builtins(getattr(cluster.backend, name))
        for name in BackendEntry.__struct_fields__
        if name not in ("kind", "settings")
        and getattr(cluster.backend, name) != getattr(BackendEntry(), name)
    }
    backend.update(BACKENDS.get(cluster.backend.kind).to_data(cluster.backend.settings))
    backend["kind"] = cluster.backend.kind
    data: dict[str, object] = {
        "name": cluster.name,
        "address": str(cluster.address),
        "door": str(cluster.door),
        "backend": backend,
    }
    if cluster.retired:
        data["retired"] = True
    if cluster.reserve:
        data["reserve"] = cluster.reserve
    if cluster.runners:
        data["runners"] = [
            {"name": entry.name, "address": str(entry.address), "door": str(entry.door)}
            for entry in cluster.runners
        ]
    if cluster.nodes:
        data["nodes"] = _nodes_to_data(cluster)
    return data


def _nodes_to_data(cluster: ClusterEntry) -> list[dict[str, object]]:
    """Return the nodes, with equal neighbours as one entry with a count."""
    lines: list[tuple[int, NodeConfig]] = []
    for node in cluster.nodes:
        if lines and lines[-1][1] == node:
            lines[-1] = (lines[-1][0] + 1, node)
        else:
            lines.append((1, node))
    data: list[dict[str, object]] = []
    for count, node in lines:
        line: dict[str, object] = {
            "count": count,
            "cpus": f"{node.capacity.cpu}m",
            "memory": node.capacity.memory,
        }
        if node.capacity.gpu:
            line["gpus"] = node.capacity.gpu
        if node.capacity.custom:
            line["resources"] = dict(node.capacity.custom)
        if node.attributes:
            line["attributes"] = dict(node.attributes)
        if node.runner != cluster.own_runner:
            line["runner"] = node.runner
        data.append(line)
    return data
