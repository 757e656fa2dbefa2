"""The redaction of a job in answers: its secret, and values of environment variables with secret names.

A variable whose name contains ``SECRET`` or ends with ``TOKEN`` or ``PASSWORD`` is for the tasks alone. Only
an admin, who can read the journals anyway, sees its value. The secret from which the keys of attempts are
derived (the workers of an executor authenticate with one) is shown to nobody: no work of an admin needs it.
"""

from typing import Final

import msgspec

from hanse.api.row_records import JobDetail
from hanse.model.job import TaskGroup
from hanse.model.program import decode_program, encode_program
from hanse.security.identity import Role

SECRET_WORD: Final = "SECRET"  # noqa: S105  part of a name
SECRET_ENDINGS: Final = ("TOKEN", "PASSWORD")
HIDDEN: Final = "(kept secret)"
"""The text shown instead."""


def redact(role: Role, detail: JobDetail) -> JobDetail:
    """Return a job as a client with this role may see it."""
    groups = tuple(_redact_group(group, role is Role.ADMIN) for group in detail.spec.groups)
    return msgspec.structs.replace(detail, spec=msgspec.structs.replace(detail.spec, groups=groups))


def _redact_group(group: TaskGroup, with_env: bool) -> TaskGroup:
    program = decode_program(group.payload)
    if program is None:
        return group
    env = tuple((name, HIDDEN if _is_secret(name) and not with_env else value) for name, value in program.env)
    secret = HIDDEN.encode() if program.secret else b""
    if (env, secret) == (program.env, program.secret):
        return group
    redacted = msgspec.structs.replace(program, env=env, secret=secret)
    return msgspec.structs.replace(group, payload=encode_program(redacted))


def _is_secret(name: str) -> bool:
    return SECRET_WORD in name.upper() or name.upper().endswith(SECRET_ENDINGS)
