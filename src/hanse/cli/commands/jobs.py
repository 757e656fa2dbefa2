"""``hanse jobs``, ``show``, ``why``, ``wait``, ``cancel`` and ``retry``: jobs of the league."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from hanse.cli.common_options import JOB, league_client, league_options, print_json, seconds_option
from hanse.client.errors import CommandError, warn
from hanse.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hanse.api.row_records import JobRow
    from hanse.client.client import LeagueClient
    from hanse.client.job_listing import JobListing

LIMIT_DEFAULT: Final = 50
WATCH_SECONDS: Final = 2.0
"""Seconds between two drawings of ``--watch``."""
DECISIONS_SHOWN_MAX: Final = 50
RETRIED_MAX: Final = 1_000_000
ACTIVE: Final = ("blocked", "queued", "placed", "running")
ENDED: Final = ("succeeded", "failed", "cancelled")
STATE_CHOICES: Final = (*ACTIVE, *ENDED, "active", "ended")


@click.command("jobs")
@click.option("--all", "everything", is_flag=True, help="List every job.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATE_CHOICES),
    help="Only jobs in this state; repeatable.",
)
@click.option("--tenant", default="", help="Only jobs of this tenant.")
@click.option("--name", default="", help="Only jobs of exactly this name.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="Number of jobs, the newest first.",
)
@click.option("-w", "--watch", is_flag=True, help="Redraw the list until Ctrl-C.")
@league_options
def jobs(everything: bool, states: tuple[str, ...], tenant: str, name: str, limit: int, watch: bool,
         as_json: bool) -> None:  # fmt: skip
    """List the newest jobs of all brokers."""
    from hanse.client.job_listing import JobFilter  # noqa: PLC0415  help need not wait for it

    wanted: dict[str, None] = {}
    for word in states:
        wanted |= dict.fromkeys({"active": ACTIVE, "ended": ENDED}.get(word, (word,)))
    chosen = JobFilter(tuple(wanted), tenant, name)
    with league_client() as client:
        if watch and not as_json:
            _watch(lambda: client.jobs(chosen, None if everything else limit))
            return
        listing = client.jobs(chosen, None if everything else limit)
    for broker, why in listing.silent.items():
        warn(f"{broker} does not answer ({why}); its jobs are shown as far as other brokers know them")
    if as_json:
        print_json({"jobs": listing.rows, "more": listing.more, "silent": list(listing.silent)})
        return
    from hanse.cli.tables import console  # noqa: PLC0415  only to draw

    if not listing.rows:
        click.echo("no jobs; submit one with 'hanse submit -- CMD...'" if not states else "no such jobs")
        return
    console().print(_jobs_table(listing.rows))
    if listing.more:
        click.echo(f"the newest {len(listing.rows)} are shown; --all shows all", err=True)


def _jobs_table(rows: "list[JobRow]") -> "RenderableType":
    from rich.markup import escape  # noqa: PLC0415  only to draw

    from hanse.cli.formatting import age_text, elapsed_text, progress_text  # noqa: PLC0415  as above
    from hanse.cli.tables import state_markup, table  # noqa: PLC0415  as above

    columns = ("job", "name", "tenant", "state", "ended", "running", "submitted", "took", "clusters")
    cells = [
        (
            row.id,
            escape(row.name),
            escape(row.tenant) if row.tenant != "default" else "",
            state_markup(row.state),
            progress_text(row),
            str(row.running or ""),
            age_text(row.submitted),
            elapsed_text(row.started, row.ended) if row.started is not None else "",
            escape(", ".join(row.clusters)),
        )
        for row in rows
    ]
    return table(columns, cells, right=("ended", "running", "took"))


def _watch(ask: "Callable[[], JobListing]") -> None:
    """Draw a list again and again. Wait for a league that does not answer for a moment."""
    from rich.live import Live  # noqa: PLC0415  only to draw
    from rich.text import Text  # noqa: PLC0415  as above

    from hanse.cli.tables import console  # noqa: PLC0415  as above

    with Live(Text("..."), console=console(), auto_refresh=False, screen=False) as display:
        while True:
            try:
                display.update(_jobs_table(ask().rows), refresh=True)
            except CommandError as error:
                if error.status != ExitCode.UNAVAILABLE:
                    raise
                display.update(Text(f"{error.message}\nlooking again..."), refresh=True)
            time.sleep(WATCH_SECONDS)


@click.command("show")
@click.argument("job", type=JOB)
@click.option(
    "--tasks",
    "shown",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Number of tasks to list; failures come first.",
)
@league_options
def show(job: str, shown: int, as_json: bool) -> None:  # fmt: skip
    """Show a job: its state, its groups, its tasks, its usage, and the decisions about it."""
    from hanse.cli.show_data import collect_page  # noqa: PLC0415  help need not wait for it

    with league_client() as client:
        page = collect_page(client, job, shown)
    if as_json:
        print_json(page.as_json())
        return
    from hanse.cli.show_view import print_page  # noqa: PLC0415  as above
    from hanse.cli.tables import console  # noqa: PLC0415  only to draw

    print_page(console(), page)


@click.command("why")
@click.argument("job", type=JOB)
@click.option("--decisions", "detailed", is_flag=True, help="Also list the recorded decisions.")
@league_options
def why(job: str, detailed: bool, as_json: bool) -> None:
    """Explain why a job waits, runs where it runs, or ended, from the recorded decisions."""
    with league_client() as client:
        answer = client.why(job)
    if as_json:
        print_json({"job": job, "sentences": answer.sentences, "decisions": answer.decisions})
        return
    for sentence in answer.sentences:
        click.echo(sentence)
    if not answer.sentences:
        click.echo(f"nothing is recorded about {job}")
    if detailed:
        from hanse.cli.show_view import decisions_table  # noqa: PLC0415  as above
        from hanse.cli.tables import console  # noqa: PLC0415  only to draw

        console().print(decisions_table(answer.decisions[-DECISIONS_SHOWN_MAX:]))


@click.command("wait")
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@seconds_option("--timeout", "Wait at most this long, such as 90s or 2h (status 124).")
@click.option("--now", is_flag=True, help="Do not wait; the status is 101 if a job has not ended.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only set the exit status.")
@league_options
@click.pass_context
def wait(
    ctx: click.Context, /, jobs: tuple[str, ...], timeout: float | None, now: bool, quiet: bool, as_json: bool
) -> None:
    """Wait until all these jobs end.

    \b
    Ends with 0 if all of them succeeded, otherwise as the first that did not:
    100 failed, 101 not ended (with --now), 102 not found, 103 cancelled, 105 deadline passed, 124 timeout.
    """
    from hanse.cli.waiting import first_failure, print_end, status_of, wait_for_jobs  # noqa: PLC0415  as above

    with league_client() as client:
        rows = [client.wait(job, 0) for job in jobs] if now else wait_for_jobs(client, list(jobs), timeout)
    if as_json:
        print_json({"jobs": rows})
    elif not quiet:
        for row in rows:
            if row.state in ENDED:
                print_end(row)
            else:
                click.echo(f"{row.id} {row.name} is {row.state}")
    ctx.exit(first_failure([status_of(row) for row in rows]))


@click.command("cancel")
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@click.option("--wait", "waiting", is_flag=True, help="Wait until their tasks end.")
@league_options
def cancel(jobs: tuple[str, ...], waiting: bool, as_json: bool) -> None:
    """Cancel jobs. Their running tasks get a signal, and the job's grace time to save their work.

    A job that has ended stays as it is.
    """
    from hanse.cli.waiting import print_end, wait_for_jobs  # noqa: PLC0415  as above

    worst: CommandError | None = None
    done: list[str] = []
    rows: list[Any] = []
    with league_client() as client:
        for job in jobs:
            try:
                client.cancel(job)
                done.append(job)
            except CommandError as error:  # still cancel the others
                if len(jobs) > 1:
                    error.show()
                worst = worst or error
        rows = wait_for_jobs(client, done, None) if waiting else [client.job(job).row for job in done]
    if as_json:
        print_json({"jobs": rows})
    else:
        for row in rows:
            if row.state in ENDED:
                print_end(row)
            else:
                click.echo(f"{row.id} {row.name} is being cancelled")
    if worst is not None:
        if len(jobs) > 1:
            raise SystemExit(worst.status)
        raise worst


@click.command("retry")
@click.argument("job", type=JOB)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the new id.")
@league_options
def retry(job: str, quiet: bool, as_json: bool) -> None:
    """Submit the tasks of JOB that did not succeed as a new job.

    Of an array only the tasks that did not succeed are tried again; each finds its old index in $HANSE_TASK.
    A job of one task, a gang, and a job whose groups need each other is submitted again as a whole.
    """
    from hanse.client.job_form import with_client_id  # noqa: PLC0415  as above
    from hanse.client.retry_form import is_divisible, retry_form  # noqa: PLC0415  as above

    with league_client() as client:
        detail = client.job(job)
        if detail.row.state not in ENDED:
            hint = f"'hanse cancel {job}' ends it, 'hanse wait {job}' waits for it"
            raise CommandError(f"{job} is {detail.row.state}", ExitCode.JOB_NOT_FINISHED, hint)
        if detail.row.state == "succeeded":
            raise CommandError(f"{job} has succeeded; there is nothing to try again", ExitCode.FAILED)
        failed = _unsuccessful_tasks(client, job) if is_divisible(detail.spec) else []
        done = tuple(other for other, state in detail.after if state == "succeeded")
        form = retry_form(detail.spec, failed, done)
        if isinstance(form, str):
            raise CommandError(form, ExitCode.FAILED, "submit the whole job again")
        (result,) = client.submit([with_client_id(form)])
    if not result.job:
        reason = result.refused or "; ".join(f"{flaw.field}: {flaw.rule}" for flaw in result.problems)
        raise CommandError(f"the league did not take it: {reason}", ExitCode.UNPLACEABLE)
    retried = len(failed) or detail.row.total
    if as_json:
        print_json({"job": result.job, "of": job, "tasks": retried})
    elif quiet:
        click.echo(result.job)
    else:
        click.echo(f"{result.job}  {detail.row.name} ({retried} of {detail.row.total} tasks of {job})")


def _unsuccessful_tasks(client: "LeagueClient", job: str) -> list[int]:
    """Return the indices of the tasks that did not succeed, ascending."""
    indices: list[int] = []
    after: str | None = ""
    while after is not None and len(indices) < RETRIED_MAX:
        page = client.tasks(job, after=after)
        indices += [row.index for row in page.tasks if row.state != "succeeded"]
        after = page.next
    return indices
