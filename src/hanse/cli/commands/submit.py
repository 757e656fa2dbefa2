"""``hanse submit``: submission of a job, from a file or from the command line."""

import os
from collections.abc import Callable
from typing import Any, Final

import click

from hanse.cli.common_options import league_client, league_options, print_json, seconds_option
from hanse.cli.job_options import job_options
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

NAME_CHARACTERS_MAX: Final = 60
"""Longest name that a job of the command line gets from its program."""


class SplitCommand(click.Command):
    """Command whose arguments behind ``--`` are passed on unchanged."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside the arguments behind the first ``--``; click would lose its position."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["hanse.command"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Add ``[-- CMD...]`` to the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- CMD...]"]


_OPTIONS: Final = (
    *job_options(),
    click.option("--dry-run", is_flag=True, help="Only check the job, and print it with --json."),
    click.option("-q", "--quiet", is_flag=True, help="Print nothing but the ids."),
    click.option("--wait", is_flag=True, help="Wait until it ends; the exit status tells how."),
    click.option("-f", "--follow", is_flag=True, help="Show its output until it ends; then as --wait."),
    seconds_option("--timeout", "With --wait: at most this long (status 124)."),
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("submit", cls=SplitCommand)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@_options
@league_options
@click.pass_context
def submit(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Submit a job: a command behind '--', or FILEs in YAML or JSON ('-' is standard input).

    \b
      hanse submit -- make all
      hanse submit -n 100 --cpus 2 --mem 1GiB -- ./simulate
      hanse submit job.yaml --priority 5

    Options override the file. A job is safe with two brokers when its id is printed. A file may hold several
    jobs, with '---' between them.

    \b
    Ends with 0 if the league has the job, 2 or 65 if it breaks a rule, 3 if the league cannot place it, 75 if
    the league did not answer in time; with --wait or --follow as 'hanse wait'.
    """
    from hanse.client.job_form import JobDraft, check_drafts, with_client_id  # noqa: PLC0415  keeps help fast

    if given["follow"] and as_json:
        raise click.UsageError("--follow shows the output of the job, which is not JSON; use --wait")
    drafts = _read_drafts(files, ctx.meta.get("hanse.command", ()), given)
    if given["client_id"] and len(drafts) > 1:
        raise click.UsageError("--client-id names one submission, and these are several jobs")
    check_drafts(drafts)
    drafts = [JobDraft(with_client_id(draft.form), draft.source, draft.lines) for draft in drafts]
    forms = [draft.form for draft in drafts]
    if given["dry_run"]:
        if as_json:
            print_json({"jobs": forms})
        else:
            click.echo(f"{len(forms)} job{'s' * (len(forms) != 1)} checked, nothing wrong, nothing submitted")
        return
    with league_client() as client:
        results = client.submit(forms)
        mode = "json" if as_json else "ids" if given["quiet"] else "words"
        status = _print_results(drafts, results, "nothing" if as_json and given["wait"] else mode)
        if given["wait"] or given["follow"]:
            ids = [result.job for result in results if result.job]
            status = _wait_for_end(client, ids, given, as_json) or status
    ctx.exit(status)


def _read_drafts(files: tuple[str, ...], command: tuple[str, ...], given: dict[str, Any]) -> "list[Any]":
    from hanse.client.job_form import JobDraft, form_from_options, read_drafts  # noqa: PLC0415  as above

    form = form_from_options(given, command)
    if command and files:
        raise click.UsageError("a job is a file or a command, not both; put the command into the file")
    if command:
        form.setdefault("name", _name_of(command))
        return [JobDraft(_with_shell_defaults(form))]
    if not files:
        raise click.UsageError("nothing to run. Write 'hanse submit -- CMD...', or name a job file")
    _refuse_missing_files(files)
    drafts = [draft for file in files for draft in read_drafts(file)]
    return [
        JobDraft(_with_shell_defaults({**draft.form, **form}), draft.source, draft.lines)
        if isinstance(draft.form, dict)
        else draft
        for draft in drafts
    ]


def _with_shell_defaults(form: dict[str, object]) -> dict[str, object]:
    """Add the shell's tenant and trace to a job that names none. Ignore an invalid trace: other programs may
    use the variable."""
    from hanse.model.field_reader import read_trace  # noqa: PLC0415  as above

    tenant, parent = os.environ.get("HANSE_TENANT"), read_trace(os.environ.get("TRACEPARENT"), "")
    defaults: dict[str, object] = {"tenant": tenant} if tenant else {}
    if isinstance(parent, str):
        defaults["trace"] = parent
    return {**defaults, **form}


def _refuse_missing_files(files: tuple[str, ...]) -> None:
    """Refuse a missing file; a program's name in the place of a file is the commonest mistake."""
    from pathlib import Path  # noqa: PLC0415  as above

    for file in files:
        if file != "-" and not Path(file).exists():
            words = " ".join(files)
            raise CommandError(
                f"there is no file '{file}'",
                ExitCode.FILE,
                f"to run a command write: hanse submit -- {words}",
            )


def _name_of(command: tuple[str, ...]) -> str:
    """Return the program's name, as far as it can name a job."""
    name = "".join(letter for letter in command[0].rpartition("/")[2] if letter.isprintable()).strip()
    return name[:NAME_CHARACTERS_MAX] or "job"


def _print_results(drafts: list[Any], results: list[Any], mode: str) -> ExitCode:
    """Print the result of each submission, as JSON, ids, words or nothing; return the status."""
    from hanse.client.job_form import describe_problems  # noqa: PLC0415  as above
    from hanse.model.problem import Problem  # noqa: PLC0415  as above

    statuses = []
    for draft, result in zip(drafts, results, strict=True):
        name = draft.form.get("name", "job")
        if result.job:
            statuses.append(ExitCode.OK)
            if mode in ("ids", "words"):
                click.echo(result.job if mode == "ids" else f"{result.job}  {name}")
            continue
        lines = describe_problems(draft, [Problem(flaw.field, flaw.rule) for flaw in result.problems]) or [
            result.refused
        ]
        error = CommandError(
            "\n  ".join([f"the league did not take '{name}':", *lines]), _refusal_status(result)
        )
        if result.unsure:
            error.hint = f"submit it again with: --client-id {draft.form['client_id']}"
        error.show()
        statuses.append(error.status)
    if mode == "json":
        print_json({"results": [_json_result(*pair) for pair in zip(drafts, results, strict=True)]})
    elif mode == "words" and len(results) == 1 and results[0].job:
        click.echo(f"  hanse logs -f {results[0].job}   hanse why {results[0].job}", err=True)
    return next((status for status in statuses if status is not ExitCode.OK), ExitCode.OK)


def _refusal_status(result: Any) -> ExitCode:
    if result.problems:
        return ExitCode.BAD_JOB
    return ExitCode.UNSURE if result.unsure else ExitCode.UNPLACEABLE


def _json_result(draft: Any, result: Any) -> dict[str, object]:
    return {
        "name": draft.form.get("name", "job"),
        "client_id": draft.form["client_id"],
        "job": result.job or None,
        "problems": [{"field": flaw.field, "rule": flaw.rule} for flaw in result.problems],
        "refused": result.refused or None,
        "unsure": result.unsure,
    }


def _wait_for_end(client: Any, jobs: list[str], given: dict[str, Any], as_json: bool) -> ExitCode:
    """Wait for the jobs, with their output if asked for; return their status."""
    from hanse.cli.commands.logs import WantedOutput, follow  # noqa: PLC0415  as above
    from hanse.cli.waiting import first_failure, print_end, status_of, wait_for_jobs  # noqa: PLC0415  as above

    if given["follow"]:
        for job in jobs:
            follow(client.endpoints, job, None, WantedOutput())
    rows = wait_for_jobs(client, jobs, given["timeout"])
    if as_json:
        print_json({"jobs": rows})
    elif not given["quiet"]:
        for row in rows:
            print_end(row)
    return first_failure([status_of(row) for row in rows])
