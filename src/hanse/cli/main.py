"""``hanse``: the root of the command line.

Each command lives in its own module, which is imported when the command runs, so that ``hanse --help`` does
not wait for NumPy. ``COMMANDS`` is the command list: to add a command, add a line. A line whose module is not
installed is not listed.

A user's mistake ends with one sentence that says what to do; only a bug of Hanse shows a traceback.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from hanse import __version__
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """Location of a command, and its help text in the command list."""

    module: str
    """Module in ``hanse.cli.commands``."""
    attribute: str
    help: str


COMMANDS: Final[dict[str, CommandEntry]] = {
    "tour": CommandEntry("tour", "tour", "Watch a real league place, run and explain jobs on this machine."),
    "up": CommandEntry("up", "up", "Start a league on this machine and print how to use it."),
    "down": CommandEntry("up", "down", "Stop the league on this machine; its jobs are kept."),
    "status": CommandEntry("clusters", "status", "Show the state of the league."),
    "clusters": CommandEntry("clusters", "clusters", "List the clusters and their free resources."),
    "nodes": CommandEntry("clusters", "nodes", "List the nodes of the clusters."),
    "submit": CommandEntry("submit", "submit", "Submit a job: a command or a job file."),
    "plan": CommandEntry("plan", "plan", "Show when and where a job would start, without submitting it."),
    "jobs": CommandEntry("jobs", "jobs", "List the newest jobs."),
    "show": CommandEntry("jobs", "show", "Show a job: tasks, usage, decisions."),
    "why": CommandEntry("jobs", "why", "Explain why a job waits, runs where it runs, or ended."),
    "logs": CommandEntry("logs", "logs", "Print the output of a job."),
    "wait": CommandEntry("jobs", "wait", "Wait until jobs end."),
    "cancel": CommandEntry("jobs", "cancel", "Cancel jobs."),
    "retry": CommandEntry("jobs", "retry", "Submit the unsuccessful tasks of a job again."),
    "drain": CommandEntry("drain", "drain", "Stop new tasks from starting on a cluster or a node."),
    "undrain": CommandEntry("drain", "undrain", "Let tasks start again on a drained cluster or node."),
    "league": CommandEntry("league_file", "league", "Show and change the league file while the league runs."),
    "config": CommandEntry("contexts", "config", "Show and choose the league that commands use."),
    "completion": CommandEntry("completion", "completion", "Print a shell completion script."),
    "init": CommandEntry("enrollment", "init", "Create a league for several machines from a league file."),
    "token": CommandEntry(
        "enrollment", "token", "Create single-use tokens with which members and people join."
    ),
    "access": CommandEntry(
        "access", "access", "Create and list access tokens for people and programs; revoke people."
    ),
    "join": CommandEntry("enrollment", "join", "Join a league with a token."),
    "renew": CommandEntry("enrollment", "renew", "Renew the certificate of a person before it expires."),
    "broker": CommandEntry("daemons", "broker", "Run one broker in the foreground."),
    "warden": CommandEntry("daemons", "warden", "Run the warden of one cluster in the foreground."),
    "runner": CommandEntry("daemons", "runner", "Run a runner on a machine other than its warden's."),
    "journal": CommandEntry("journal", "journal", "Verify, repair and replay the journals on this machine."),
    "backup": CommandEntry(
        "backup", "backup_command", "Back up a member, or the certificate authority, to a file."
    ),
    "restore": CommandEntry("backup", "restore_command", "Restore a backup."),
    "demo": CommandEntry("demo", "demo", "Watch a small simulated league place, run and explain mixed jobs."),
    "chaos": CommandEntry(
        "chaos", "chaos", "Inject faults into simulated leagues and report broken promises."
    ),
    "trace": CommandEntry("trace", "trace", "Convert, describe, sample and generate workload traces."),
    "world": CommandEntry("world", "world", "Generate and describe worlds of unequal clusters for replays."),
    "replay": CommandEntry(
        "replay", "replay", "Replay a trace under several policies and compare the results."
    ),
    "sweep": CommandEntry(
        "sweep", "sweep_command", "Replay a trace over a grid of loads, policies and brokers."
    ),
    "policies": CommandEntry("replay", "policies_command", "List the policies that a replay can compare."),
    "train": CommandEntry("learning", "train", "Train a policy."),
    "eval": CommandEntry("learning", "evaluate", "Measure policies on the same streams."),
    "report": CommandEntry("learning", "report", "Write a page of measured results."),
}
"""Commands by name, in the order of the command list."""

SECTIONS: Final = (
    ("Work", ("submit", "plan", "jobs", "show", "why", "logs", "wait", "cancel", "retry")),
    ("The league", ("tour", "up", "down", "status", "clusters", "nodes", "drain", "undrain")),
    (
        "Members",
        (
            *("init", "token", "access", "join", "renew", "broker", "warden", "runner"),
            *("journal", "backup", "restore"),
        ),
    ),
    ("This program", ("config", "completion")),
)
"""Headings of the command list with their commands; all others go under ``OTHER_SECTION``."""
OTHER_SECTION: Final = "Simulation and training"


class LazyGroup(click.Group):
    """Group that imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands whose modules are installed, in the order of ``COMMANDS``."""
        del ctx
        return [
            name
            for name, entry in COMMANDS.items()
            if find_spec(f"hanse.cli.commands.{entry.module}") is not None
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command and return it."""
        if cmd_name not in self.list_commands(ctx):
            return None
        entry = COMMANDS[cmd_name]
        command = getattr(import_module(f"hanse.cli.commands.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), f"{entry.module}.{entry.attribute} is no command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but suggest a command for an unknown word."""
        word = args[0]
        names = self.list_commands(ctx)
        if word not in names and not word.startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  only a misspelt command needs it

            similar = get_close_matches(word, names, n=1)
            hint = f"Did you mean '{similar[0]}'?" if similar else f"There are: {', '.join(names)}."
            ctx.fail(f"No such command '{word}'. {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Offer commands without importing any; complete options as click does."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem  # noqa: PLC0415  only completion needs it

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name].help) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, without importing any."""
        available = self.list_commands(ctx)
        in_sections = [name for _, names in SECTIONS for name in names]
        rest = (OTHER_SECTION, tuple(name for name in available if name not in in_sections))
        for title, names in (*SECTIONS, rest):
            rows = [(name, COMMANDS[name].help) for name in names if name in available]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", prog_name="hanse")
@click.option(
    "--context", metavar="NAME", envvar="HANSE_CONTEXT", help="The context to use; also $HANSE_CONTEXT."
)
@click.pass_context
def hanse(ctx: click.Context, /, context: str | None) -> None:
    """Hanse: run jobs on a league of autonomous clusters.

    \b
      hanse up                      start a league on this machine
      hanse submit -- make all      submit a job
      hanse jobs                    list the jobs
      hanse why JOB                 explain why a job waits or runs where it runs

    'demo', 'chaos', 'replay' and similar commands run the same code in a simulated league.
    """
    ctx.obj = context


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments (default: those of this process); return the status."""
    try:
        status = hanse.main(
            args=None if arguments is None else list(arguments), prog_name="hanse", standalone_mode=False
        )
    except click.Abort:  # click's name for Ctrl-C
        click.echo("hanse: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except CommandError as error:
        error.show()
        return error.status
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE if isinstance(error, click.UsageError) else error.exit_code
    except SystemExit as leave:
        return _exit_status(leave.code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"hanse: {where}{error.strerror or error}", err=True)
        return ExitCode.FILE
    except Exception as error:  # noqa: BLE001  any other exception is a bug of Hanse
        missing = _find_missing_extra(error)
        if missing is not None:
            missing.show()
            return missing.status
        _print_bug_report()
        return ExitCode.BUG
    return _exit_status(status)


def _exit_status(returned: object) -> int:
    """Return the exit status for the value that a command returned or exited with."""
    if returned is None:
        return ExitCode.OK
    return returned if isinstance(returned, int) else ExitCode.FAILED


def _find_missing_extra(error: Exception) -> CommandError | None:
    """Return the error of a command whose optional packages are not installed; None: it is another error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    from hanse.registry.extras import find_missing_extra, install_command  # noqa: PLC0415  rarely needed

    found = find_missing_extra(error)
    if found is None:
        return None
    package, extra = found
    message = f"this command needs {package}, which is not installed: {install_command(extra)}"
    return CommandError(message, ExitCode.UNAVAILABLE)


def _print_bug_report() -> None:
    from traceback import format_exc  # noqa: PLC0415  only a bug needs it, and it is slow to import

    click.echo(format_exc(), err=True)
    click.echo("hanse: this is a bug in Hanse. Please report the lines above.", err=True)


def main() -> None:
    """Run the ``hanse`` command and exit."""
    sys.exit(run())
