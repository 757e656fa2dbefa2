"""The redaction of a job in answers: its secret, and values of environment variables with secret names.

A variable whose name contains ``SECRET`` or ends with ``TOKEN`` or ``PASSWORD`` is for the tasks alone. Only
an admin, who can read the journals anyway, sees its value. The secret from which the keys of attempts are
derived (the workers of an executor authenticate with one) is shown to nobody: no work of an admin needs it.
"""

from typing import Final

import msgspec

from hanse.api.rows import JobDetail
from hanse.model.job import TaskGroup
from hanse.model.program import decode_program, encode_program
from hanse.security.identity import Role

WORD: Final = "SECRET"
ENDINGS: Final = ("TOKEN", "PASSWORD")
HIDDEN: Final = "(kept secret)"
"""The text shown instead."""


def shown_to(role: Role, detail: JobDetail) -> JobDetail:
    """Return a job as a client with this role may see it."""
    groups = tuple(_shown(group, role is Role.ADMIN) for group in detail.spec.groups)
    return msgspec.structs.replace(detail, spec=msgspec.structs.replace(detail.spec, groups=groups))


def _shown(group: TaskGroup, with_env: bool) -> TaskGroup:
    command = decode_program(group.payload)
    if command is None:
        return group
    env = tuple((name, HIDDEN if _secret(name) and not with_env else value) for name, value in command.env)
    secret = HIDDEN.encode() if command.secret else b""
    if (env, secret) == (command.env, command.secret):
        return group
    shown = msgspec.structs.replace(command, env=env, secret=secret)
    return msgspec.structs.replace(group, payload=encode_program(shown))


def _secret(name: str) -> bool:
    return WORD in name.upper() or name.upper().endswith(ENDINGS)
