"""Reader of the backend of a cluster in the league file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from hanse.league.backend_kinds import BACKENDS
from hanse.league.config import BackendEntry, UserRange
from hanse.league.fields import BACKEND_FIELDS, LIMITS, SANDBOXES, USERS_FIELDS
from hanse.league.value_readers import choice_reader, registry_reader
from hanse.model.field_descriptions import names_of
from hanse.model.field_reader import FieldReader, read_text
from hanse.model.problem import Problem, ProblemList
from hanse.model.quantities import parse_bytes, parse_whole


def backend_reader(problems: ProblemList) -> Callable[[object, str], BackendEntry | Problem]:
    """Return a reader for a backend: its kind, or a mapping with its settings."""

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
            kind=fields.read("kind", registry_reader(BACKENDS), kind.name),
            sandbox=fields.read("sandbox", choice_reader(SANDBOXES), "auto"),
            user=fields.read("user", read_text, ""),
            users=fields.read("users", _users_reader(problems), UserRange()),
            memory_default=fields.read("memory_default", parse_bytes, 0),
            output=fields.read("output", parse_bytes, BackendEntry().output),
            disk=fields.read("disk", parse_bytes, BackendEntry().disk),
            files=fields.read("files", parse_whole, BackendEntry().files),
            directory=fields.read("directory", _read_absolute_path, ""),
            limits=fields.read("limits", choice_reader(LIMITS), "auto"),
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
