"""Writer of jobs: from a ``JobSpec`` to the form that ``model.job_parser`` parses to the same job.

``model.job_fields`` is the table of all fields, which the writer walks. A value that means that nothing is
set is left out; all others are written, also those that are the default.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hanse.model import job_fields
from hanse.model.field_descriptions import AMOUNT_PREFIX, JobField
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.program import decode_program

_UNSET: Final = (None, "", b"", ())
"""Values that mean that nothing is set."""


def write_job_form(spec: JobSpec) -> dict[str, Any]:
    """Return the form of a job, its groups written one by one."""
    return {
        **_write_rows(spec, job_fields.TABLE.job),
        "groups": [write_group_form(group) for group in spec.groups],
    }


def write_group_form(group: TaskGroup) -> dict[str, Any]:
    """Return the form of one group."""
    table = job_fields.TABLE
    form = _write_rows(group, (table.group_name, *table.values))
    most = group.ask_max or group.ask
    for row in table.amounts:
        kind = row.attribute.removeprefix(AMOUNT_PREFIX)
        form[row.name] = row.write((getattr(group.ask, kind), getattr(most, kind)))
    program = decode_program(group.payload)
    return form if program is None else {**form, **_write_rows(program, table.program)}


def _write_rows(record: msgspec.Struct, rows: Iterable[JobField]) -> dict[str, Any]:
    """Write the values that a record has for some fields. Rows without a reader and without fields are left
    to the caller."""
    form: dict[str, Any] = {}
    for row in rows:
        written: object = None
        if row.record is not None:
            written = [_write_rows(entry, row.fields) for entry in getattr(record, row.target)]
        elif row.fields:
            written = _write_rows(record, row.fields)
        elif row.read is not None and getattr(record, row.target) not in _UNSET:
            written = row.write(getattr(record, row.target))
        if written not in (None, [], {}):
            form[row.name] = written
    return form
