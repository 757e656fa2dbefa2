"""Readers of single values of the league file: names, addresses, choices."""

from collections.abc import Callable
from typing import Any, Final

from hanse.league.config import Address
from hanse.league.fields import HOST_CHARACTERS_MAX, NAME_CHARACTERS_MAX
from hanse.model.field_reader import FieldReader, read_integer
from hanse.model.problem import Problem, describe_value
from hanse.registry import Registry

_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def choice_reader(words: tuple[str, ...]) -> Callable[[object, str], str | Problem]:
    """Return a reader for one of these words."""

    def read(value: object, field: str) -> str | Problem:
        if isinstance(value, str) and value in words:
            return value
        return Problem(field, f"this is one of {', '.join(words)}, not {describe_value(value)}")

    return read


def registry_reader(registry: Registry[Any]) -> Callable[[object, str], str | Problem]:
    """Return a reader for the name of something that can be used here: our own, or of an installed
    package."""

    def read(value: object, field: str) -> str | Problem:
        if not isinstance(value, str) or value not in registry:
            rule = f"this is one of {', '.join(registry.names())}, not {describe_value(value)}"
            return Problem(field, f"{rule}{registry.hint}")
        problem = registry.find_problem(value)
        return Problem(field, problem) if problem else value

    return read


def read_member_name(fields: FieldReader) -> str:
    """Read the name of a member, which is required."""
    if not fields.has_field("name"):
        fields.problems.add(fields.path_of("name"), "every member has a name; it is missing")
    return fields.read("name", read_name, "")


def read_name(value: object, field: str) -> str | Problem:
    """Read a name: of a league or of a member."""
    if isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS_MAX and set(value) <= _NAME_CHARACTERS:
        return value
    rule = f"a name is 1 to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' or '.'"
    return Problem(field, f"{rule}, not {describe_value(value)}")


def read_host(value: object, field: str) -> str | Problem:
    """Read a host name or an address without a port; the brackets of IPv6 may be there."""
    host = value.strip("[]") if isinstance(value, str) else ""
    if 0 < len(host) <= HOST_CHARACTERS_MAX and set(host) <= _NAME_CHARACTERS | {":"}:
        return host
    return Problem(field, f'this is a host such as "10.0.0.5", without a port, not {describe_value(value)}')


def read_listen_address(fields: FieldReader, key: str) -> Address:
    """Read the address of a listener; left out: not chosen yet."""
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
