"""The table of job fields reaches everything that knows the fields, and so does a new row."""

from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from tools.reference.job_file import page

from hanse.api.job_schemas import FORMS, make_schemas
from hanse.cli.commands.submit import submit
from hanse.cli.job_options import job_options
from hanse.client.job_form import form_from_options, option_of
from hanse.client.retry_form import retry_form
from hanse.live.http.openapi import document
from hanse.model import job_fields, job_parser
from hanse.model.field_descriptions import CommandOption, JobField, JobFormTable, OptionKind
from hanse.model.field_reader import read_integer
from hanse.model.job import JobSpec
from hanse.model.job_parser import parse_job_form

ROWS = list(job_fields.TABLE.rows())
OPTIONS = [parameter for parameter in submit.params if isinstance(parameter, click.Option)]
OTHER_OPTIONS = {"dry_run", "quiet", "wait", "follow", "timeout", "context", "as_json"}
NEVER_REPEATED = {"client_id", "secret"}
"""A second submission has an id of its own; a job with a secret is not submitted again."""


def test_the_parser_knows_every_row() -> None:
    """A wrong value of any field is told, where it is."""
    for path, row in ROWS:
        section = path.rpartition(".")[0]
        wrong: dict[str, Any] = {row.name: {1: 2}}
        if section:
            wrong = {section: [wrong] if section == "affinity" else wrong}
        elif row.name == "needs":
            wrong = {"groups": [wrong]}
        found = parse_job_form({"command": "true", **wrong})
        assert isinstance(found, tuple), f"nothing reads {path}"
        assert any(row.name in problem.field for problem in found), found


def test_every_row_with_an_option_has_it_and_no_other_option_sets_a_field() -> None:
    made = {option.name: tuple(option.opts) for option in OPTIONS}
    named = {
        row.name: option.flags
        for _, row, option in job_fields.TABLE.option_rows()
        if option.kind is not OptionKind.ARGUMENT
    }
    assert {name: opts for name, opts in made.items() if name not in OTHER_OPTIONS} == named
    ranks = [option.rank for _, _, option in job_fields.TABLE.option_rows()]
    assert len(set(ranks)) == len(ranks)


@pytest.mark.parametrize(("path", "row"), ROWS, ids=[path for path, _ in ROWS])
def test_an_option_ends_in_its_field(path: str, row: JobField) -> None:
    if row.option is None:
        return
    assert option_of(path) == row.option.flags[0]
    given = {
        OptionKind.TEXT: "x", OptionKind.WHOLE: 7, OptionKind.FLAG: True, OptionKind.TEXTS: ("x",),
        OptionKind.JOBS: ("1-7",), OptionKind.PAIRS: ("a=1",), OptionKind.VARIABLES: ("a=1",),
    }  # fmt: skip
    is_command = row.option.kind is OptionKind.ARGUMENT
    form: Any = form_from_options(
        {} if is_command else {row.name: given[row.option.kind]}, ("ls",) if is_command else ()
    )
    for part in path.split("."):
        (form,) = (form[key] for key in form if key == part)
    assert form


def test_every_row_is_in_the_record_of_the_openapi_document() -> None:
    schemas = document("broker")["components"]["schemas"]
    table = job_fields.TABLE
    assert list(schemas["JobForm"]["properties"]) == list(table.top_names)
    assert list(schemas["GroupForm"]["properties"]) == list(table.entry_names)
    for row in table.top:
        if row.fields:
            entry = schemas[f"{row.name.title()}Form"]
            assert list(entry["properties"]) == [part.name for part in row.fields]
            assert entry.get("required", []) == [part.name for part in row.fields if part.required]
    assert [field.encode_name for field in msgspec.structs.fields(FORMS.job)] == list(table.top_names)


def test_every_row_is_on_the_reference_page() -> None:
    text = page()
    headings = [line.removeprefix("### `")[:-1] for line in text.split("\n") if line.startswith("### `")]
    table = job_fields.TABLE
    inner = [part.name for row in table.top for part in row.fields]
    assert headings == [*(row.name for row in (*table.job, *table.group, *table.program)), *inner]


def test_every_row_is_resubmitted() -> None:
    form = {
        "name": "n", "tenant": "t", "class": "latency", "priority": 1, "deadline": 9, "retries": 2,
        "preemptible": True, "grace": 1, "gang": True, "unreachable": "wait", "on_loss": "fail",
        "together": "rack", "spread": "zone", "spread_max": 2,
        "clusters": {"allow": ["a"], "deny": ["b"], "prefer": ["a"]}, "labels": ["web"], "after": ["1-7"],
        "client_id": "mine", "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "count": 2, "cpus": "1..4", "memory": 1, "gpus": 1, "resources": {"fpga": 1}, "where": "ssd exists",
        "affinity": [{"label": "db", "scope": "cluster", "apart": True}], "duration": 9,
        "speed_up": [[1, 1, 1]], "command": ["ls"], "env": {"A": "b"}, "workdir": "/srv",
    }  # fmt: skip
    spec = parse_job_form(form)
    assert isinstance(spec, JobSpec), spec
    written = retry_form(spec, [0, 1])
    assert not isinstance(written, str), written
    again = parse_job_form(written)
    assert again == msgspec.structs.replace(spec, client_id="")
    groups: Any = written["groups"]
    (group,) = groups
    names = {*written, *group} - {"groups"}
    assert names == {*job_fields.TABLE.top_names} - {"groups", "needs"} - NEVER_REPEATED


# --- a new field -------------------------------------------------------------------------------------------


class ColouredJob(JobSpec, frozen=True):
    """A job with one more field."""

    colour: int = 0


COLOUR = JobField(
    "colour", "whole number", "0", "", "Colour of the job in tables.", "colour: 3",
    read=read_integer, schema=int,
    option=CommandOption(("--colour",), 155, "Colour of the job.", "N", OptionKind.WHOLE),
)  # fmt: skip


def test_a_new_row_reaches_the_parser_options_resubmission_openapi_and_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new field needs at most four files to be written by hand.

    A field of the job: its row in ``model/job_fields.py``, its place in ``model/job.py``, a bound of its
    value in ``model/job_validation.py``, and the module that acts on it. A field of the program: its row, its
    place in ``model/program.py``, and the two backends that start programs
    (``live/backends/process/launch_requests.py``, ``live/backends/slurm/batch_script.py``). The reference
    pages and ``docs/reference/openapi.json`` are generated.
    """
    fields = (*job_fields.JOB_FIELDS, COLOUR)
    table = JobFormTable(fields, job_fields.GROUP_FIELDS, job_fields.PROGRAM_FIELDS)
    monkeypatch.setattr(job_fields, "TABLE", table)
    monkeypatch.setattr(job_parser, "JobSpec", ColouredJob)

    command: Any = lambda **given: click.echo(f"colour {given['colour']}")  # noqa: E731  an option is put on it
    for option in reversed(job_options()):
        command = option(command)
    said = CliRunner().invoke(click.command()(command), ["--colour", "3"])
    assert said.output == "colour 3\n"
    assert option_of("colour") == "--colour"

    form = form_from_options({"colour": 3}, ("ls",))
    spec = parse_job_form(form)
    assert isinstance(spec, ColouredJob), spec
    assert spec.colour == 3
    assert parse_job_form({**form, "colour": "red"}) == (
        job_parser.Problem("colour", "this is a whole number, not 'red'"),
    )
    written = retry_form(spec, [0])
    assert parse_job_form(written) == spec

    assert "colour" in {field.encode_name for field in msgspec.structs.fields(make_schemas().job)}
    _, schemas = msgspec.json.schema_components([make_schemas().job])
    assert schemas["JobForm"]["properties"]["colour"]["description"] == COLOUR.meaning
    assert "### `colour`" in page()
    assert "option `--colour`" in page()
