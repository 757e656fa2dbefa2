"""The compiled launcher and supervisor of tasks: the place of its program, and the sum of its sources.

``main.c`` says what it does and why; ``setup.py`` compiles all C files of this folder to ``_supervisor``.
"""

import zlib
from functools import cache
from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).with_name("_supervisor")


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
    """The sum of the sources that the program must have been built from; 0 (anything) where they are not
    shipped."""
    crc = 0
    for path in source_files():
        crc = zlib.crc32(path.read_bytes(), crc)
    return crc


def source_files() -> list[Path]:
    """The C files and headers of the program, in the order in which their sum is taken."""
    return sorted(path for path in PROGRAM.parent.iterdir() if path.suffix in (".c", ".h"))
