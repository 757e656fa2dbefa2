"""Reader of the devices of a node in the league file, and the checks that they agree with its resources."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hanse.core.config import NodeConfig
from hanse.league.fields import DEVICE_FIELDS
from hanse.model.field_descriptions import names_of
from hanse.model.field_reader import FieldReader, read_text
from hanse.model.hardware.devices import (
    AMD,
    DEVICE_TEXT_CHARACTERS_MAX,
    DEVICES_PER_NODE_MAX,
    GPU,
    NVIDIA,
    Device,
)
from hanse.model.problem import Problem, ProblemList, describe_value
from hanse.model.quantities import parse_bytes, parse_whole
from hanse.model.resources import BASE_DIMENSIONS, GPUS_MAX, Resources

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Names of kinds: each is a resource, and in capitals a part of a variable."""
_AMD_PATHS: Final = "/dev/dri/"


def read_devices(fields: FieldReader) -> tuple[Device, ...]:
    """Read ``devices`` of a node."""
    value = fields.raw_value("devices")
    if value is None:
        return ()
    path = fields.path_of("devices")
    if not isinstance(value, list) or len(value) > DEVICES_PER_NODE_MAX:
        many = f"a list of {len(value)}" if isinstance(value, list) else describe_value(value)
        fields.problems.add(path, f"this is a list of at most {DEVICES_PER_NODE_MAX} devices, not {many}")
        return ()
    devices: list[Device] = []
    places: dict[str, int] = {}
    for place, item in enumerate(value):
        device = _read_device(item, f"{path}[{place}]", fields.problems, places)
        if device is not None:
            devices.append(device)
    _check_repeated(devices, path, fields.problems)
    return tuple(devices)


def _read_device(value: object, path: str, problems: ProblemList, places: dict[str, int]) -> Device | None:
    fields = FieldReader.from_value(value, path, names_of(DEVICE_FIELDS), problems)
    if fields is None:
        return None
    if not fields.has_field("kind"):
        problems.add(fields.path_of("kind"), "every device has a kind, such as gpu; it is missing")
    kind = fields.read("kind", _read_kind, GPU)
    place = places[kind] = places.get(kind, -1) + 1
    file = fields.read("path", _read_path, "")
    vendor = fields.read("vendor", _read_vendor, "")
    return Device(
        kind,
        fields.read("index", _read_index, place),
        (file,) if file else (),
        fields.read("model", _read_short_text, ""),
        fields.read("memory", parse_bytes, 0),
        fields.read("uuid", _read_short_text, ""),
        vendor or (AMD if kind == GPU and file.startswith(_AMD_PATHS) else ""),
    )


def _check_repeated(devices: list[Device], path: str, problems: ProblemList) -> None:
    seen: dict[str, None] = {}
    for place, device in enumerate(devices):
        names = [f"the index {device.index} of {device.kind}", *(f"the file {file}" for file in device.paths)]
        names += [f"the uuid {device.uuid}"] if device.uuid else []
        for name in names:
            if name in seen:
                problems.add(f"{path}[{place}]", f"another device of this node has {name}")
            seen[name] = None


def count_devices(
    capacity: Resources, devices: tuple[Device, ...], fields: FieldReader, count: int
) -> Resources:
    """Return the capacity with the devices that are listed: a number that the file gives, too, must agree."""
    if not devices:
        return capacity
    if count > 1:
        fields.problems.add(
            fields.path_of("count"), "nodes with 'devices' are listed one by one: each has its own"
        )
    numbers: dict[str, int] = {}
    for device in devices:
        numbers[device.kind] = numbers.get(device.kind, 0) + 1
    custom = dict(capacity.custom)
    for kind, number in numbers.items():
        given = capacity.gpu if kind == GPU else custom.get(kind, 0)
        field = fields.path_of("gpus" if kind == GPU else "resources")
        if given and given != number:
            fields.problems.add(
                field, f"{number} {kind} devices are listed, but the number is {given}: both must be equal"
            )
        custom[kind] = number
    gpus = custom.pop(GPU, capacity.gpu)
    return Resources(capacity.cpu, capacity.memory, min(gpus, GPUS_MAX), tuple(sorted(custom.items())))


def check_shared_devices(nodes: tuple[NodeConfig, ...], path: str, problems: ProblemList) -> None:
    """Check that no two nodes of one runner, which are parts of one machine, list the same device."""
    seen: dict[tuple[str, str], int] = {}
    for number, node in enumerate(nodes):
        for device in node.devices:
            for name in (*device.paths, *([device.uuid] if device.uuid else [])):
                first = seen.setdefault((node.runner, name), number)
                if first != number:
                    rule = "are on one machine, and a device belongs to one node; both list"
                    problems.add(path, f"nodes {first} and {number} {rule} {name}")


def devices_to_data(devices: tuple[Device, ...]) -> list[dict[str, object]]:
    """Return devices as the data of the file."""
    data = []
    for device in devices:
        line: dict[str, object] = {"kind": device.kind, "index": device.index}
        if device.paths:
            line["path"] = device.paths[0]
        given: Mapping[str, object] = {
            "model": device.model, "memory": device.memory, "uuid": device.uuid, "vendor": device.vendor
        }  # fmt: skip
        line.update({name: value for name, value in given.items() if value})
        data.append(line)
    return data


def _read_kind(value: object, field: str) -> str | Problem:
    if isinstance(value, str) and _KIND.fullmatch(value) and value not in BASE_DIMENSIONS[:2]:
        return value
    rule = (
        "a kind is 'gpu' or the name of a resource: at most 32 small letters, digits and '_', a letter first"
    )
    return Problem(field, f"{rule}, not {describe_value(value)}")


def _read_vendor(value: object, field: str) -> str | Problem:
    if value in (NVIDIA, AMD):
        return str(value)
    return Problem(field, f"this is one of {NVIDIA}, {AMD}, not {describe_value(value)}")


def _read_index(value: object, field: str) -> int | Problem:
    number = parse_whole(value, field)
    if isinstance(number, int) and number > GPUS_MAX:
        return Problem(field, f"an index is at most {GPUS_MAX}, not {number}")
    return number


def _read_path(value: object, field: str) -> str | Problem:
    text = _read_short_text(value, field)
    if isinstance(text, Problem):
        return text
    is_plain = Path(text).is_absolute() and str(Path(text)) == text and ".." not in Path(text).parts
    if not is_plain or any(character < " " or character == "," for character in text):
        return Problem(field, f"this is an absolute path such as /dev/nvidia0, not {describe_value(value)}")
    return text


def _read_short_text(value: object, field: str) -> str | Problem:
    text = read_text(value, field)
    if isinstance(text, str) and len(text) > DEVICE_TEXT_CHARACTERS_MAX:
        return Problem(field, f"this is a text of at most {DEVICE_TEXT_CHARACTERS_MAX} characters")
    return text
