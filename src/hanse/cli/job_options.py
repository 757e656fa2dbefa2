"""Options of ``hanse submit`` that set job fields, made from the table of job fields."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from hanse.cli.common_options import JOB
from hanse.model import job_fields
from hanse.model.field_descriptions import CommandOption, OptionKind

Command = TypeVar("Command", bound=Callable[..., Any])

_SETTINGS: Final[dict[OptionKind, dict[str, Any]]] = {
    OptionKind.TEXT: {},
    OptionKind.WHOLE: {"type": int},
    OptionKind.FLAG: {"is_flag": True},
    OptionKind.TEXTS: {"multiple": True},
    OptionKind.JOBS: {"multiple": True, "type": JOB},
    OptionKind.PAIRS: {"multiple": True},
    OptionKind.VARIABLES: {"multiple": True},
}
"""Settings of the options of each kind. Fields of kind ``argument`` have none."""


def job_options() -> list[Callable[[Command], Command]]:
    """Return an option for each job field that has one, in the order of the help. The value is given to the
    command by the name of the field."""
    return [
        _make_option(row.name, option)
        for _, row, option in job_fields.TABLE.option_rows()
        if option.kind is not OptionKind.ARGUMENT
    ]


def _make_option(name: str, option: CommandOption) -> Callable[[Command], Command]:
    settings = dict(_SETTINGS[option.kind])
    if option.choices:
        settings["type"] = click.Choice(option.choices)
    return click.option(*option.flags, name, metavar=option.metavar or None, help=option.help, **settings)
