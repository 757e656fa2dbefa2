"""World file on disk: ``read_world``, ``write_world``.

It is YAML that people write by hand; ``world_fields`` is the table of its fields. An error names the place
and what is allowed, and nothing is guessed. What is written is read back as the same world.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hanse.model.field_descriptions import names_of
from hanse.model.field_reader import FieldReader, read_text
from hanse.model.problem import Problem, ProblemList, describe_value
from hanse.sim.worlds.fields.field_kinds import ENTRIES_MAX, WorldField
from hanse.sim.worlds.fields.world_checks import find_world_problems
from hanse.sim.worlds.fields.world_fields import TABLES, default_of
from hanse.sim.worlds.round_trips import round_trips_of
from hanse.sim.worlds.world import RoundTrips, World, WorldError

FILE_BYTES_MAX: Final = 4 << 20
LATENCIES_FIELD: Final = "file"
"""Field of ``network.round_trips`` that names a file of latencies instead of the figures."""
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_world(path: Path | str) -> World:
    """Read a world file; raise ``WorldError`` with all its problems."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise WorldError(f"{path}: the world file cannot be read: {error.strerror or error}") from error
    return parse_world(raw, str(path), path.parent)


def parse_world(raw: bytes, name: str, folder: Path = Path()) -> World:
    """Return the world that a file's content describes.

    ``name``: the file in errors; ``folder``: that of a file of latencies with a relative path.
    """
    if len(raw) > FILE_BYTES_MAX:
        raise WorldError(f"{name} is larger than {FILE_BYTES_MAX} bytes")
    try:
        data = yaml.load(raw, _Loader)  # noqa: S506  a safe one
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise WorldError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    problems = ProblemList()
    latencies = _take_latencies(data, problems)
    world = _read_record(World, data, "", problems)
    if isinstance(world, World) and not problems:
        if latencies is not None:
            world = _with_latencies(world, folder / latencies)
        find_world_problems(world, problems)
        if not problems:
            return world
    lines = "\n".join(f"  {found.field or 'the file'}: {found.rule}" for found in problems.to_list())
    raise WorldError(f"{name} does not describe a world:\n{lines}")


def write_world(path: Path, world: World) -> None:
    """Write a world file that ``read_world`` reads as the same world."""
    path.write_text(world_to_text(world), encoding="utf-8")


def world_to_text(world: World) -> str:
    """Return the content of a world's file: all figures, so that new defaults do not change old worlds."""
    data = _write_record(world)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=110, default_flow_style=None)


def _take_latencies(data: object, problems: ProblemList) -> str | None:
    """Take the name of a file of latencies out of the data; it stands for ``network.round_trips``."""
    network = data.get("network") if isinstance(data, dict) else None
    trips = network.get("round_trips") if isinstance(network, dict) else None
    if not isinstance(trips, dict) or LATENCIES_FIELD not in trips or not isinstance(network, dict):
        return None
    path = f"network.round_trips.{LATENCIES_FIELD}"
    found = read_text(trips[LATENCIES_FIELD], path)
    if isinstance(found, Problem):
        problems.add(found.field, found.rule)
    elif len(trips) > 1:
        problems.add(path, "with a file, no other field may stand here: the file has the figures")
    else:
        del network["round_trips"]
        return found
    return None


def _with_latencies(world: World, path: Path) -> World:
    regions = tuple(dict.fromkeys(cluster.region_code for cluster in world.clusters))
    network = msgspec.structs.replace(world.network, round_trips=round_trips_of(regions, path))
    return msgspec.structs.replace(world, network=network)


def _read_record(
    record: type[msgspec.Struct], value: object, path: str, problems: ProblemList
) -> msgspec.Struct | None:
    """Return a record from its mapping; None, with problems, if a required field is missing."""
    rows = TABLES[record]
    known = names_of(rows) + ((LATENCIES_FIELD,) if record is RoundTrips else ())
    fields = FieldReader.from_value(value, path, known, problems)
    if fields is None:
        return None
    values: dict[str, Any] = {}
    for row in rows:
        if not fields.has_field(row.name):
            if row.is_required:
                problems.add(fields.path_of(row.name), f"this is required; for example: {row.example}")
            continue
        found = _read_field(row, fields)
        if found is not None:
            values[row.target] = found
    is_complete = all(row.target in values for row in rows if row.is_required)
    return record(**values) if is_complete else None


def _read_field(row: WorldField, fields: FieldReader) -> object:
    """Return a field's value; None, with problems, if it has none."""
    path, problems = fields.path_of(row.name), fields.problems
    value = fields.raw_value(row.name)
    if row.record is None:
        assert row.read is not None, f"the field {row.name} has no reader"
        return fields.read(row.name, row.read, None)
    if not row.is_list:
        return _read_record(row.record, value, path, problems)
    if not isinstance(value, list) or not 0 < len(value) <= ENTRIES_MAX:
        many = f"a list of {len(value)}" if isinstance(value, list) else describe_value(value)
        problems.add(path, f"this is a list of 1 to {ENTRIES_MAX} entries, not {many}")
        return None
    entries = [_read_record(row.record, item, f"{path}[{at}]", problems) for at, item in enumerate(value)]
    return None if any(entry is None for entry in entries) else tuple(entries)


def _write_record(record: msgspec.Struct) -> dict[str, object]:
    """Return the mapping of a record, without fields that are empty, as they are by default."""
    data: dict[str, object] = {}
    for row in TABLES[type(record)]:
        value = getattr(record, row.target)
        if not value and value == default_of(type(record), row):
            continue
        if row.record is None:
            data[row.name] = row.write(value)
        else:
            data[row.name] = [_write_record(item) for item in value] if row.is_list else _write_record(value)
    return data
