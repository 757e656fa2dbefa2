"""Schemas of jobs in requests, for the OpenAPI document: records made from the table of job fields.

Servers do not decode them: ``model.job_parser`` reads the plain data and describes problems better.
"""

from collections.abc import Iterable, Mapping
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from hanse.api.records import JOBS_PER_REQUEST_MAX
from hanse.model import job_fields
from hanse.model.field_descriptions import JobField

_annotated: Any = Annotated
_GROUP_TEXT: Final = "One group of equal tasks."
_JOB_TEXT: Final = (
    "A job as it is submitted; docs/reference/job-file.md has every rule. A job of one group may have the "
    "group's fields at the top instead of ``groups``. A field that is null counts as absent."
)
_REQUEST_TEXT: Final = "Body of ``POST /v1/jobs``."


class JobSchemas(NamedTuple):
    """Records that describe a request, its jobs and their groups."""

    job: type[msgspec.Struct]
    group: type[msgspec.Struct]
    request: type[msgspec.Struct]


def make_schemas() -> JobSchemas:
    """Make the records from the table."""
    table = job_fields.TABLE
    schemas = {
        row.name: _list_of(part) if row.record is not None else part
        for row in table.top
        if row.fields
        for part in (_make_record(f"{row.name.title()}Form", row.meaning, _fields(row.fields)),)
    }
    group = _make_record("GroupForm", _GROUP_TEXT, _fields(table.entry, schemas))
    schemas["groups"] = _list_of(group)
    job = _make_record("JobForm", _JOB_TEXT, _fields(table.top, schemas))
    jobs = _annotated[_list_of(job), Meta(min_length=1, max_length=JOBS_PER_REQUEST_MAX)]
    return JobSchemas(job, group, _make_record("SubmitRequest", _REQUEST_TEXT, [("jobs", jobs)]))


def _fields(rows: Iterable[JobField], schemas: Mapping[str, Any] = {}) -> list[tuple[str, Any, Any]]:
    """Return the definitions of some fields. ``schemas``: types of rows that have fields themselves."""
    return [_field(row, schemas.get(row.name, row.schema)) for row in rows]


def _field(row: JobField, schema: Any) -> tuple[str, Any, Any]:
    """Return the definition of one field. Its name in JSON is that of the row, which may be a keyword."""
    meaning = Meta(description=row.meaning)
    if row.required:
        return f"{row.name}_", _annotated[schema, meaning], msgspec.field(name=row.name)
    return f"{row.name}_", _annotated[schema | None, meaning], msgspec.field(name=row.name, default=None)


def _make_record(
    name: str, text: str, fields: Iterable[tuple[str, Any] | tuple[str, Any, Any]]
) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        fields,
        module=__name__,
        namespace={"__doc__": text},
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _list_of(record: type[msgspec.Struct]) -> Any:
    return GenericAlias(tuple, (record, ...))


FORMS: Final = make_schemas()
"""Records of the forms with all fields of the table."""
