"""Errors of commands: one sentence, the next step, and the exit code."""

from typing import IO, Any

import click

from hanse.client.exit_codes import ExitCode


class CommandError(click.ClickException):
    """Failure of a command. Shown on standard error as a sentence and a hint."""

    def __init__(self, message: str, status: ExitCode, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence, then the hint."""
        click.echo(f"hanse: {self.message}", file=file, err=file is None)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=file is None)


def warn(message: str) -> None:
    """Print a warning that does not stop the command."""
    click.echo(f"hanse: {message}", err=True)
