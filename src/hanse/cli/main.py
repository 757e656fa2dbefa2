"""``hanse``: the root of the command line.

Commands live in modules of their own and are imported when they are used, so that ``hanse --help`` need not
wait for NumPy. What the list of commands shows stands in ``COMMANDS``: to add a command, add a line. A line
whose module is not there (yet) is not shown.

Users' mistakes end with one sentence that says what to do; only bugs of ours show a traceback.
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


class Entry(NamedTuple):
    """Where a command is found, and what the list says of it."""

    module: str
    """In ``hanse.cli.commands``."""
    attribute: str
    help: str


COMMANDS: Final[dict[str, Entry]] = {
    "tour": Entry("tour", "tour", "See a real league place, run and explain work on this machine."),
    "up": Entry("up", "up", "Start a league on this machine, and say how to use it."),
    "down": Entry("up", "down", "Stop the league of this machine; its jobs are kept."),
    "status": Entry("clusters", "status", "Show how the league is."),
    "clusters": Entry("clusters", "clusters", "List the clusters and what is free there."),
    "nodes": Entry("clusters", "nodes", "List the nodes of the clusters."),
    "submit": Entry("submit", "submit", "Submit a job: a command or a file."),
    "plan": Entry("plan", "plan", "Tell when and where a job would start, without submitting it."),
    "jobs": Entry("jobs", "jobs", "List the newest jobs."),
    "show": Entry("jobs", "show", "Show a job: tasks, usage, decisions."),
    "why": Entry("jobs", "why", "Say why a job waits, runs where it does, or ended so."),
    "logs": Entry("logs", "logs", "Print what a job has written."),
    "wait": Entry("jobs", "wait", "Wait until jobs have ended."),
    "cancel": Entry("jobs", "cancel", "End jobs."),
    "retry": Entry("jobs", "retry", "Submit again what did not succeed of a job."),
    "drain": Entry("drain", "drain", "Let no new task onto a cluster or a node."),
    "undrain": Entry("drain", "undrain", "Open a drained cluster or node again."),
    "league": Entry("league", "league", "Show and change the league file while the league runs."),
    "config": Entry("config", "config", "Show and choose the league that commands speak to."),
    "completion": Entry("config", "completion", "Print a script for the shell's completion."),
    "init": Entry("identity", "init", "Found a league for several machines from a league file."),
    "token": Entry("identity", "token", "Make single-use tokens with which members and people join."),
    "access": Entry(
        "access", "access", "Make and list access tokens for people and programs; revoke people."
    ),
    "join": Entry("identity", "join", "Join a league with a token."),
    "renew": Entry("identity", "renew", "Renew somebody's certificate before it ends."),
    "broker": Entry("daemons", "broker", "Run one broker in the foreground."),
    "warden": Entry("daemons", "warden", "Run the warden of one cluster in the foreground."),
    "runner": Entry("daemons", "runner", "Run a runner on a machine that is not its warden's."),
    "journal": Entry("journal", "journal", "Verify, mend and replay the journals of this machine."),
    "backup": Entry("backup", "backup_command", "Write a member, or the authority, to a file."),
    "restore": Entry("backup", "restore_command", "Put a backup of a member back."),
    "demo": Entry("demo", "demo", "Watch a small simulated league place, run and explain mixed work."),
    "chaos": Entry("chaos", "chaos", "Try to break simulated leagues, and tell which promises broke."),
    "trace": Entry("trace", "trace", "Convert, describe, sample and generate workload traces."),
    "replay": Entry("replay", "replay", "Replay a trace under several policies and compare them."),
    "sweep": Entry("replay", "sweep_command", "Replay a trace over a grid of loads, policies and sizes."),
    "policies": Entry("replay", "policies_command", "List the policies that a replay can compare."),
    "train": Entry("edge", "train", "Train a policy."),
    "eval": Entry("edge", "evaluate", "Measure policies on common streams."),
    "report": Entry("edge", "report", "Write a page of measured results."),
    "bench": Entry("bench", "bench", "Measure this machine."),
}
"""Every command by its name, in the order of the list."""

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
"""Under which heads the list shows them; all others simulate, measure or train."""
OTHERS: Final = "Simulation and training"


class LazyGroup(click.Group):
    """A group that imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands whose modules are installed, in the order of the table."""
        del ctx
        return [
            name
            for name, entry in COMMANDS.items()
            if find_spec(f"hanse.cli.commands.{entry.module}") is not None
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        entry = COMMANDS[cmd_name]
        command = getattr(import_module(f"hanse.cli.commands.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), f"{entry.module}.{entry.attribute} is no command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual, but a word that is no command gets a suggestion."""
        word = args[0]
        names = self.list_commands(ctx)
        if word not in names and not word.startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  only a slip of the finger needs it

            near = get_close_matches(word, names, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(names)}."
            ctx.fail(f"No such command '{word}'. {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Offer commands without importing any; options as usual."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem  # noqa: PLC0415  only completion needs it

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name].help) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by sections, without importing any."""
        there = self.list_commands(ctx)
        named = [name for _, names in SECTIONS for name in names]
        rest = (OTHERS, tuple(name for name in there if name not in named))
        for title, names in (*SECTIONS, rest):
            rows = [(name, COMMANDS[name].help) for name in names if name in there]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", prog_name="hanse")
@click.option(
    "--context", metavar="NAME", envvar="HANSE_CONTEXT", help="The league to speak to; also $HANSE_CONTEXT."
)
@click.pass_context
def hanse(ctx: click.Context, /, context: str | None) -> None:
    """Hanse: a league of autonomous clusters that act as one machine.

    \b
      hanse up                      start a league on this machine
      hanse submit -- make all      give it work
      hanse jobs                    see what there is to do
      hanse why JOB                 ask why a job waits or runs where it does

    'demo', 'chaos', 'replay' and their kin run the same machines in a simulated league.
    """
    ctx.obj = context


def run(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments ask (default: those of this process); the status to end with."""
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
        return _status(leave.code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"hanse: {where}{error.strerror or error}", err=True)
        return ExitCode.FILE
    except Exception:  # noqa: BLE001  the edge: whatever is left is a bug of ours
        _confess()
        return ExitCode.BUG
    return _status(status)


def _status(given: object) -> int:
    """What a command returned or left with, as a number."""
    if given is None:
        return ExitCode.OK
    return given if isinstance(given, int) else ExitCode.FAILED


def _confess() -> None:
    from traceback import format_exc  # noqa: PLC0415  only a bug needs it, and it is slow to import

    click.echo(format_exc(), err=True)
    click.echo(
        "hanse: this is a bug of Hanse, not a mistake of yours. Please report the lines above.", err=True
    )


def main() -> None:
    """The entry point of the ``hanse`` command."""
    sys.exit(run())
