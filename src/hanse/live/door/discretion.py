"""What a door does not show of a job: values of environment variables that are called secret.

A variable whose name contains ``SECRET`` (the hands of an executor prove with one who they are) or ends with
``TOKEN`` or ``PASSWORD`` is for the tasks alone. Only an admin, who can read the journals anyway, is shown
its value.
"""

from typing import Final

import msgspec

from hanse.live.identity.identity import Role
from hanse.live.reads.rows import JobDetail
from hanse.model.job import TaskGroup
from hanse.model.payload import command_of, payload_of

WORD: Final = "SECRET"
ENDINGS: Final = ("TOKEN", "PASSWORD")
HIDDEN: Final = "(kept secret)"
"""What is shown instead."""


def shown_to(role: Role, detail: JobDetail) -> JobDetail:
    """A job as somebody with this role may see it."""
    if role is Role.ADMIN:
        return detail
    groups = tuple(_shown(group) for group in detail.spec.groups)
    return msgspec.structs.replace(detail, spec=msgspec.structs.replace(detail.spec, groups=groups))


def _shown(group: TaskGroup) -> TaskGroup:
    command = command_of(group.payload)
    if command is None or not any(_secret(name) for name, _ in command.env):
        return group
    env = tuple((name, HIDDEN if _secret(name) else value) for name, value in command.env)
    return msgspec.structs.replace(group, payload=payload_of(msgspec.structs.replace(command, env=env)))


def _secret(name: str) -> bool:
    return WORD in name.upper() or name.upper().endswith(ENDINGS)
