"""Records that describe fields of files that people write: the job file and the league file.

A ``FileField`` says what the reference page says. A ``JobField`` is a row of the table of job fields
(``model.job_fields``): beside that it holds the way from the file to the record and back, the option of
``hanse submit`` and the type in the OpenAPI document. Options are plain data here; ``cli.job_options`` makes
them.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from hanse.model.field_reader import Convert


class FileField(msgspec.Struct, frozen=True):
    """Field of a file that people write."""

    name: str
    kind: str
    """Type in words."""
    default: str
    """Default as YAML; empty: none, and the field may be left out."""
    limits: str
    """Bounds in words; empty: none."""
    meaning: str
    example: str
    """Example as YAML: the field with a value, and the fields that it needs."""


class OptionKind(StrEnum):
    """Form in which an option takes its value."""

    TEXT = "text"
    WHOLE = "whole"
    """Whole number."""
    FLAG = "flag"
    """No value; the field is true if the option is there."""
    TEXTS = "texts"
    """Text; the option may be repeated."""
    JOBS = "jobs"
    """Job id; the option may be repeated."""
    PAIRS = "pairs"
    """``NAME=VALUE``; the option may be repeated."""
    VARIABLES = "variables"
    """``NAME=VALUE``, or ``NAME`` for a variable of the shell; the option may be repeated."""
    ARGUMENT = "argument"
    """Arguments behind ``--``, without an option."""


class CommandOption(msgspec.Struct, frozen=True):
    """Option of ``hanse submit`` that sets a field."""

    flags: tuple[str, ...]
    """Names of the option; the first one is the usual one."""
    rank: int
    """Place among the options in the help: ascending."""
    help: str
    metavar: str = ""
    """Name of the value in the help; empty: that of its type."""
    kind: OptionKind = OptionKind.TEXT
    choices: tuple[str, ...] = ()
    """Words that the option takes; empty: any."""


def write_plain(value: object) -> object:
    """Return a value that the file has as the record has it."""
    return value


class JobField(FileField, frozen=True, kw_only=True):
    """Row of the table of job fields.

    A row with ``fields`` is a mapping, and with ``record``, too, a list of mappings.
    """

    attribute: str = ""
    """Field of the record that holds the value; empty: the one of the same name. ``ask.cpu`` is an amount:
    the field ``cpu`` of the smallest and of the largest size of a task."""
    read: Convert[Any] | None = None
    """Converter of the raw value and its path to the value in the record, or to a problem. None: the parser
    reads the entries of the field by themselves."""
    write: Callable[[Any], object] = write_plain
    """Converter of the value in the record to a raw value that ``read`` reads as the same."""
    schema: Any = str
    """Type in the OpenAPI document."""
    option: CommandOption | None = None
    fields: "tuple[JobField, ...]" = ()
    """Fields of each mapping."""
    record: type[msgspec.Struct] | None = None
    """Record of each mapping of a list; None: the values are in the record that has this row."""
    required: str = ""
    """Rule that is told if the field is missing; empty: it may be left out."""
    merge: Callable[[Any, Any], Any] | None = None
    """Joins a program's value of the job with that of a group; None: that of the group wins."""

    @property
    def target(self) -> str:
        """Field of the record that holds the value."""
        return self.attribute or self.name


AMOUNT_PREFIX: Final = "ask."
"""Start of ``attribute`` in the rows of amounts."""


class JobFormTable:
    """All job fields, by the record that they belong to."""

    def __init__(
        self, job: tuple[JobField, ...], group: tuple[JobField, ...], program: tuple[JobField, ...]
    ) -> None:
        self.job = job
        self.group_name, *rest = group
        self.group = group
        """Fields of an entry of ``groups``, the group's name first."""
        self.top_of_group = tuple(rest)
        """Fields of a group that may stand at the top of a job with one group."""
        self.amounts = tuple(row for row in rest if row.attribute.startswith(AMOUNT_PREFIX))
        self.values = tuple(row for row in rest if row not in self.amounts)
        """Fields of a group except its name and its amounts."""
        self.program = program
        """Fields of the program, the command first."""
        self.top = (*job, *rest, *program)
        """Fields that may stand at the top of the file."""
        self.entry = (*group, *program)
        """Fields that may stand in an entry of ``groups``."""
        self.top_names = names_of(self.top)
        self.entry_names = names_of(self.entry)

    def rows(self) -> Iterator[tuple[str, JobField]]:
        """Yield every field that can be written at the top, and those in its mappings, with its path."""
        for row in self.top:
            yield row.name, row
            for part in row.fields:
                yield f"{row.name}.{part.name}", part

    def option_rows(self) -> list[tuple[str, JobField, CommandOption]]:
        """Return the fields with an option, by rank, each with its path."""
        found = [(path, row, row.option) for path, row in self.rows() if row.option is not None]
        return sorted(found, key=lambda entry: entry[2].rank)


def names_of(fields: Sequence[FileField]) -> tuple[str, ...]:
    """Return the names of some fields, in the order of the table."""
    return tuple(field.name for field in fields)
