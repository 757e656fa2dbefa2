"""Options, client and id types shared by the commands of the live league."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from hanse.client import contexts

if TYPE_CHECKING:
    from hanse.client.client import LeagueClient

    TextParam = click.ParamType[str]
    PlaceParam = click.ParamType[tuple[str, int | None]]
else:  # older versions of click have no type parameter here
    TextParam = PlaceParam = click.ParamType

COMPLETION_JOBS_MAX: Final = 20
"""Jobs that shell completion offers."""

Command = TypeVar("Command", bound=Callable[..., Any])


def _remember_context(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value:
        ctx.find_root().obj = value
    return value


context_option: Final = click.option(
    "--context", metavar="NAME", expose_value=False, callback=_remember_context,
    help="The context to use; also before the command, or $HANSE_CONTEXT.",
    shell_complete=lambda _ctx, _param, word: completions(contexts.load().contexts, word),
)  # fmt: skip
json_option: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")


def league_options(command: Command) -> Command:
    """Add ``--context`` and ``--json`` after a command's own options."""
    return context_option(json_option(command))


@contextmanager
def league_client() -> "Iterator[LeagueClient]":
    """Open the client of the chosen league."""
    from hanse.client.client import LeagueClient  # noqa: PLC0415  keeps help texts and completion fast
    from hanse.client.endpoints import Endpoints  # noqa: PLC0415  as above

    endpoints = Endpoints.from_context(contexts.requested_name())
    try:
        yield LeagueClient(endpoints)
    finally:
        endpoints.close()


def print_json(value: object) -> None:
    """Print one JSON document of records and plain data."""
    import msgspec  # noqa: PLC0415  as above

    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def completions(candidates: "dict[str, Any] | list[str]", prefix: str) -> list[CompletionItem]:
    """Return the completions of a prefix."""
    return [CompletionItem(word) for word in candidates if word.startswith(prefix)]


# --- arguments ---------------------------------------------------------------------------------------------


class JobType(TextParam):
    """Job id as the league assigned it, such as ``1-7``."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text if it is a job id."""
        from hanse.model.ids import parse_job  # noqa: PLC0415  as above

        text = str(value)
        if parse_job(text) is None:
            self.fail(f"'{text}' is not a job id. An id looks like 1-7; 'hanse jobs' lists them", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the newest jobs, if the league answers."""
        with suppress(click.ClickException, OSError):
            from hanse.client.job_listing import JobFilter  # noqa: PLC0415  as above

            del ctx
            with league_client() as client:
                rows = client.jobs(JobFilter(), COMPLETION_JOBS_MAX).rows
            return [
                CompletionItem(row.id, help=f"{row.name} ({row.state})")
                for row in rows
                if row.id.startswith(incomplete)
            ]
        return []


class TaskType(JobType):
    """Job id, or task id such as ``1-7.3``."""

    name = "job[.task]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text if it is a job id or a task id."""
        from hanse.model.ids import parse_task  # noqa: PLC0415  as above

        text = str(value)
        return text if parse_task(text) is not None else super().convert(text, param, ctx)


class PlaceType(PlaceParam):
    """Cluster, or one of its nodes as ``north/3``."""

    name = "cluster[/node]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | None]:
        """Return the cluster and the node's number; None means all nodes."""
        if isinstance(value, tuple):
            return value
        cluster, slash, node = str(value).partition("/")
        if not cluster or (slash and not (node.isascii() and node.isdigit())):
            self.fail(f"'{value}' is not a cluster or node; write north or north/3", param, ctx)
        return cluster, int(node) if slash else None

    def shell_complete(self, ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the clusters of the context."""
        del ctx
        with suppress(click.ClickException, OSError):
            return completions(contexts.current_context(contexts.requested_name())[1].clusters, incomplete)
        return []


JOB: Final = JobType()
TASK: Final = TaskType()
PLACE: Final = PlaceType()


def seconds_option(name: str, help_text: str) -> Callable[[Command], Command]:
    """Return an option for a time as job files write it: ``90``, ``90s``, ``1h30m``."""
    return click.option(name, metavar="TIME", callback=_parse_seconds, help=help_text)


def _parse_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from hanse.model.problem import Problem  # noqa: PLC0415  as above
    from hanse.model.quantities import parse_duration  # noqa: PLC0415  as above

    span = parse_duration(value, param.opts[0])
    if isinstance(span, Problem):
        raise click.BadParameter(span.rule, ctx, param)
    return span / 1e6


def is_on_terminal() -> bool:
    """True if standard error, where progress is shown, is a terminal."""
    return sys.stderr.isatty()
