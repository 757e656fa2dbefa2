"""A task that has a key is closed to others of its user before its program does anything."""

import os
import pwd
from pathlib import Path

import pytest

from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.program import Program, encode_program
from tests.live.backends.desk import Desk, launch, read, with_desk
from tests.live.backends.places import NODES

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
NOBODY = pwd.getpwnam("nobody")
SECRET = b"s" * 32


@pytest.mark.parametrize(("secret", "owner"), [(SECRET, 0), (b"", NOBODY.pw_uid)])
def test_only_root_looks_into_a_task_with_a_key(place: Path, secret: bytes, owner: int) -> None:
    # The kernel gives these files to root exactly if nobody else may look into the process.
    look = encode_program(Program(("stat", "-c", "%u", "/proc/self/environ"), secret=secret))

    async def story(desk: Desk) -> None:
        await desk.run(launch(look))
        assert (await read(desk.backend)).decode() == f"{owner}\n"

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def test_a_task_with_a_key_has_its_own_groups(place: Path) -> None:
    look = encode_program(Program(("grep", "-E", "^(Uid|Gid)", "/proc/self/status"), secret=SECRET))

    async def story(desk: Desk) -> None:
        await desk.run(launch(look))
        said = (await read(desk.backend)).decode().split()
        assert said == ["Uid:", *[str(NOBODY.pw_uid)] * 4, "Gid:", *[str(NOBODY.pw_gid)] * 4]

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)
