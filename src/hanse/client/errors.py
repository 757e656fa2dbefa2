"""How commands tell what went wrong: one sentence, what to do next, and the status to end with."""

from typing import IO, Any

import click

from hanse.client.exit_codes import ExitCode


class CommandError(click.ClickException):
    """What was asked for cannot be done. Shown on standard error as a sentence and a hint."""

    def __init__(self, message: str, status: ExitCode, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """The sentence, then what to do next."""
        click.echo(f"hanse: {self.message}", file=file, err=file is None)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=file is None)


def warn(message: str) -> None:
    """Something that does not stop the command, but that its user should know."""
    click.echo(f"hanse: {message}", err=True)
