"""The optional sandbox around a task: bubblewrap, with the system's programs and the task's own directory.

Inside there are no other processes, no network, no host files but ``/usr`` and a few of ``/etc`` (read only),
a ``/tmp`` of its own and the attempt's working directory. It keeps a program from what it has no business
with; the limits are still those of ``limits``. A task's own ``workdir`` must exist *inside*.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import Final

TMP_BYTES_MAX: Final = 512 << 20
"""Size of the sandbox's ``/tmp``; what is in it counts as the task's memory."""
_ROOTS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS: Final = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl/certs",
)


class SandboxMissingError(RuntimeError):
    """Bubblewrap was asked for and is not installed, or could not do its work here."""


def bubblewrap() -> tuple[bytes, ...]:
    """The command that sets up the sandbox, but for the working directory and the program."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxMissingError(
            "the sandbox needs bubblewrap: install it (package bubblewrap) or choose 'none'"
        )
    words = [program, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    for root in _ROOTS:
        path = Path(root)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), root]
        elif path.is_dir():
            words += ["--ro-bind", root, root]
    for setting in _SETTINGS:
        words += ["--ro-bind-try", setting, setting]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(TMP_BYTES_MAX), "--tmpfs", "/tmp"]  # noqa: S108  the sandbox's own
    return tuple(os.fsencode(word) for word in words)


def check_reach(directory: Path, uid: int, gids: tuple[int, ...]) -> None:
    """Raise ``SandboxMissingError`` if bubblewrap, which runs as the task's user, could not get to the tasks'
    directories."""
    for place in (directory, *directory.parents):
        facts = place.stat()
        shift = 6 if facts.st_uid == uid else 3 if facts.st_gid in gids else 0
        if not facts.st_mode >> shift & stat.S_IXOTH:
            raise SandboxMissingError(
                f"the sandbox cannot be used: the user of the tasks (number {uid}) may not enter {place}; "
                "put the tasks elsewhere, open that directory (chmod o+x), or choose 'none'"
            )


def wrap(
    sandbox: tuple[bytes, ...], home: bytes, workdir: bytes, argv: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """The whole command: ``home`` (empty: none) can be written inside, ``workdir`` is where it begins."""
    binding = (b"--bind", home, home) if home else ()
    return (*sandbox, *binding, b"--chdir", workdir, b"--", *argv)
