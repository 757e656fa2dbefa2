"""The compiled launcher and supervisor of tasks: where its program is, and from which source it was built.

``supervisor.c`` says what it does and why; ``setup.py`` compiles it to ``_supervisor`` beside it.
"""

import zlib
from functools import cache
from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).with_name("_supervisor")
SOURCE: Final = Path(__file__).with_name("supervisor.c")


class SupervisorMissingError(RuntimeError):
    """Tasks cannot run as processes here: the supervisor's program is not there, or is an old one."""


def supervisor_program() -> Path:
    """The program, for the process backend to start; raises ``SupervisorMissingError`` if it is not there."""
    if not PROGRAM.is_file():
        raise SupervisorMissingError(
            "the supervisor of tasks is not built: no C compiler was there at installation; "
            "install gcc and reinstall"
        )
    return PROGRAM


@cache
def source_checksum() -> int:
    """What the program must say it was built from; 0 (anything) where the source is not shipped."""
    return zlib.crc32(SOURCE.read_bytes()) if SOURCE.is_file() else 0
