"""Forms of jobs from files, options, and jobs that were submitted before.

All of them become plain data in the form of ``model.job_parser`` and are checked here first: errors appear
without a round trip, with the line of the file or the option.
"""

import os
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.model import job_fields
from hanse.model.field_descriptions import CommandOption, OptionKind
from hanse.model.job import SPEC_BYTES_MAX, JobSpec
from hanse.model.job_parser import parse_job_form
from hanse.model.problem import Problem

FILE_BYTES_MAX: Final = 16 * SPEC_BYTES_MAX
"""Largest file of jobs."""
DOCUMENTS_MAX: Final = 10_000
"""Largest number of jobs in one file."""

Form = dict[str, object]


class JobDraft(NamedTuple):
    """Job before it is submitted."""

    form: Form
    source: str = ""
    """File of the job; empty: the command line."""
    lines: Mapping[str, int] = {}
    """Line of each field, by its path."""

    def location_of(self, field: str) -> str:
        """Return a field's place in the user's terms."""
        if not self.source:
            return option_of(field)
        path = field
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        line = self.lines.get(path, 1)
        return f"{self.source}:{line}: {field}" if field else f"{self.source}:{line}"


def option_of(field: str) -> str:
    """Return the option that sets a field of the form."""
    options = {path: option.flags[0] for path, _, option in job_fields.TABLE.option_rows()}
    known = [path for path in options if field == path or field.startswith((f"{path}[", f"{path}."))]
    if known:
        return options[max(known, key=len)]
    head = field.partition(".")[0].partition("[")[0]
    return f"--{head}" if head else "the job"


def check_drafts(drafts: Iterable[JobDraft]) -> list[JobSpec]:
    """Parse the jobs; raise all problems at once if any job is invalid."""
    specs: list[JobSpec] = []
    lines: list[str] = []
    status = ExitCode.BAD_JOB
    for draft in drafts:
        spec = parse_job_form(draft.form)
        if isinstance(spec, JobSpec):
            specs.append(spec)
            continue
        lines += describe_problems(draft, spec)
        if not draft.source:
            status = ExitCode.USAGE
    if lines:
        raise CommandError("\n  ".join(["the job was not submitted:", *lines]), status)
    return specs


def describe_problems(draft: JobDraft, problems: Iterable[Problem]) -> list[str]:
    """Format problems as sentences with their places."""
    return [f"{draft.location_of(problem.field)}: {problem.rule}" for problem in problems]


def with_client_id(form: Form) -> Form:
    """Return the form with a client id, so that it may be sent twice."""
    return form if form.get("client_id") else {**form, "client_id": f"cli-{uuid.uuid4().hex}"}


# --- files -------------------------------------------------------------------------------------------------


def read_drafts(path: str) -> list[JobDraft]:
    """Read the jobs of a YAML or JSON file (``-``: standard input), one for each document."""
    if path == "-":
        source, data = "standard input", sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        source = path
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise CommandError(f"{source} is longer than {FILE_BYTES_MAX} bytes", ExitCode.BAD_JOB)
    drafts = _json_draft(source, data) or _yaml_drafts(source, data)
    if not drafts:
        raise CommandError(f"{source} holds no job", ExitCode.BAD_JOB)
    return [_unwrap(draft) for draft in drafts]


def _json_draft(source: str, data: bytes) -> list[JobDraft]:
    """Read a JSON file. JSON is YAML too, but reading it as YAML takes a hundred times as long."""
    if not data.lstrip().startswith(b"{"):
        return []
    try:
        form = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []  # it may be YAML that begins with a brace; the YAML reader also gives the line of an error
    return [JobDraft(form, source)]


def _yaml_drafts(source: str, data: bytes) -> list[JobDraft]:
    import yaml  # noqa: PLC0415  slow to import; jobs of the command line do not need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(data)
    drafts: list[JobDraft] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            lines: dict[str, int] = {}
            _record_lines(node, "", lines, source, 0)
            drafts.append(JobDraft(loader.construct_document(node), source, lines))
            if len(drafts) > DOCUMENTS_MAX:
                raise CommandError(f"{source} holds more than {DOCUMENTS_MAX} jobs", ExitCode.BAD_JOB)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise CommandError(f"{source}:{line}: this is not YAML: {error.problem}", ExitCode.BAD_JOB) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandError(f"{source}: this is not YAML: {error}", ExitCode.BAD_JOB) from None
    finally:
        loader.dispose()
    return [draft for draft in drafts if draft.form is not None]


_LINES_MAX: Final = 20_000
_DEPTH_MAX: Final = 16


def _record_lines(node: Any, path: str, lines: dict[str, int], source: str, depth: int) -> None:
    """Record the line of every field. Raise if a field is repeated: YAML itself would drop the first."""
    lines.setdefault(path, node.start_mark.line + 1)
    if len(lines) > _LINES_MAX or depth > _DEPTH_MAX:
        return
    if node.id == "sequence":
        for index, item in enumerate(node.value):
            _record_lines(item, f"{path}[{index}]", lines, source, depth + 1)
    elif node.id == "mapping":
        for key, value in node.value:
            name = str(key.value)
            below = f"{path}.{name}" if path else name
            line = key.start_mark.line + 1
            if key.id == "scalar" and below in lines:
                raise CommandError(
                    f"{source}:{line}: {below} is set twice (first in line {lines[below]})",
                    ExitCode.BAD_JOB,
                )
            lines[below] = line
            _record_lines(value, below, lines, source, depth + 1)


def _unwrap(draft: JobDraft) -> JobDraft:
    """Unwrap a job in the style of Kubernetes (``apiVersion``, ``kind``, ``metadata``, ``spec``)."""
    form = draft.form
    if not isinstance(form, dict) or "apiVersion" not in form:
        return draft
    for field, wanted in (("apiVersion", "hanse/v1"), ("kind", "Job")):
        if form.get(field) != wanted:
            raise CommandError(f"{draft.location_of(field)}: this must be {wanted}", ExitCode.BAD_JOB)
    metadata, spec = form.get("metadata") or {}, form.get("spec")
    unknown = [str(key) for key in form if key not in ("apiVersion", "kind", "metadata", "spec")]
    if isinstance(metadata, dict):
        unknown += [f"metadata.{key}" for key in metadata if key != "name"]
    if unknown or not isinstance(metadata, dict) or not isinstance(spec, dict):
        field = unknown[0] if unknown else "spec" if isinstance(metadata, dict) else "metadata"
        rule = "a wrapped job has apiVersion, kind, metadata.name and spec, and nothing else"
        raise CommandError(f"{draft.location_of(field)}: {rule}", ExitCode.BAD_JOB)
    lines = {path.removeprefix("spec.").removeprefix("metadata."): line for path, line in draft.lines.items()}
    return JobDraft({**metadata, **spec}, draft.source, lines)


# --- options -----------------------------------------------------------------------------------------------


def form_from_options(options: Mapping[str, Any], command: tuple[str, ...]) -> Form:
    """Build the form from the options of ``hanse submit``; only given options are in it."""
    given = {**options, job_fields.TABLE.program[0].name: command}
    form: Form = {}
    for path, row, option in job_fields.TABLE.option_rows():
        value = given.get(row.name)
        if value is None or value is False or value == ():
            continue
        section: Any = form
        for part in path.split(".")[:-1]:
            section = section.setdefault(part, {})
        section[row.name] = _option_value(option, value)
    return form


def _option_value(option: CommandOption, value: Any) -> object:
    """Return the value of an option as a job file has it."""
    if option.kind is OptionKind.PAIRS:
        return dict(_parse_pair(text, option.flags[0]) for text in value)
    if option.kind is OptionKind.VARIABLES:
        return dict(_parse_variable(text, option.flags[0]) for text in value)
    return list(value) if isinstance(value, tuple) else value


def _parse_pair(text: str, option: str) -> tuple[str, str]:
    name, separator, amount = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
    return name, amount


def _parse_variable(text: str, option: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``; ``NAME`` alone passes on the variable of this shell."""
    if "=" in text:
        return _parse_pair(text, option)
    if text not in os.environ:
        raise click.BadParameter(f"'{text}' is not set here; write {text}=VALUE", param_hint=option)
    return text, os.environ[text]
