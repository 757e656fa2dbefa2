"""Isolation of tasks by bubblewrap: a sandbox, or only a namespace against other tasks.

``bwrap`` is the *sandbox*: inside there are no other processes, no network, no host files but ``/usr`` and a
few of ``/etc`` (read only), a ``/tmp`` of its own and the attempt's working directory. It keeps a program
away from everything that it does not need. A task's own ``workdir`` must exist *inside*.

``namespace`` is for daemons that are not root, whose tasks all run as one user: a task sees everything except
processes of other tasks and the files that the league keeps on this machine (keys, journals, output and
directories of other tasks). Other files of the user are open to every task.

The limits are those of ``cgroups`` in both.
"""

import logging
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final, Literal, cast

from hanse.live.backends.process.launcher_protocol import SANDBOX_REPORT
from hanse.live.supervisor import SupervisorMissingError, supervisor_program

log = logging.getLogger(__name__)
SandboxMode = Literal["none", "namespace", "bwrap"]
AUTO: Final = "auto"
"""``namespace`` for daemons that are not root, if it works; else ``none``."""
PROBE_SECONDS_MAX: Final = 20.0
"""Time limit of a trial namespace; it takes milliseconds."""
REASON_LENGTH_MAX: Final = 120
"""Characters of bubblewrap's error message that are passed on."""
TMP_BYTES_MAX: Final = 512 << 20
"""Size of the sandbox's ``/tmp``; its content counts as the task's memory."""
_REPORT_OPTION: Final = b"--json-status-fd"
_LOADER_VARIABLES: Final = (b"LD_", b"GLIBC_TUNABLES=")
"""Beginnings of variables by which the loader runs other code in any program, bubblewrap too."""
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
    """Bubblewrap is required and not installed, or does not work here."""


def sandbox_command() -> tuple[bytes, ...]:
    """Return the command that sets up the sandbox, without the working directory and the program."""
    words = [
        _find_bubblewrap(),
        "--unshare-all",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/usr",
        "/usr",
    ]
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


def namespace_command(hidden: tuple[Path, ...]) -> tuple[bytes, ...]:
    """Return the command that sets up the namespace, without the working directory and the program.

    ``hidden``: directories that are empty for tasks.
    """
    words = [_find_bubblewrap(), "--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-ipc"]
    words += ["--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc"]
    words += ["--ro-bind-try", "/sys/fs/cgroup", "/sys/fs/cgroup"]  # all of these groups belong to one user
    session = f"/run/user/{os.geteuid()}"
    for place in (session, *map(str, hidden)):
        if Path(place).is_dir():  # the session's services could start processes outside
            words += ["--tmpfs", place]
    return tuple(os.fsencode(word) for word in words)


def namespace_problem() -> str | None:
    """Return the reason why no namespace can be made here, as a clause; None: it can. Tries it out."""
    try:
        words = [*namespace_command(()), _REPORT_OPTION, b"1", b"--", b"true"]  # 1: the captured output
        probe = subprocess.run(  # noqa: S603  bubblewrap
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS_MAX, check=False
        )
    except SandboxMissingError:
        return "bubblewrap is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here ({error})"
    if probe.returncode == 0:
        return None
    reason = " ".join(probe.stderr.decode(errors="replace").split())[:REASON_LENGTH_MAX]
    return f"bubblewrap does not work here ({reason or f'status {probe.returncode}'})"


def hiding_problem() -> str | None:
    """Return the reason why tasks of a root daemon see processes of other users, as a clause; None: they do
    not. Tries it out."""
    try:
        probe = subprocess.run(  # noqa: S603  Hanse's own program
            [supervisor_program(), "--try-alone"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, SupervisorMissingError) as error:
        return str(error)
    reason = " ".join(probe.stderr.decode(errors="replace").split())[:REASON_LENGTH_MAX]
    return None if probe.returncode == 0 else reason or f"status {probe.returncode}"


def can_hide_processes() -> bool:
    """True if processes of other users can be hidden from tasks; the log gives the reason if not."""
    problem = hiding_problem()
    if problem is not None:
        log.warning("tasks see the command lines of other tasks: %s", problem)
    return problem is None


def choose_sandbox(configured: str) -> tuple[SandboxMode, str | None]:
    """Return the sandbox mode of this process for the league file's ``configured``, and the reason if the
    default isolation is missing."""
    if configured != AUTO:
        return cast("SandboxMode", configured), None
    if os.geteuid() == 0:
        return "none", None
    problem = namespace_problem()
    return "none" if problem else "namespace", problem


def _find_bubblewrap() -> str:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxMissingError(
            "the sandbox needs bubblewrap: install it (package bubblewrap) or choose 'none'"
        )
    return program


def check_traversal(directory: Path, uid: int, gids: tuple[int, ...]) -> None:
    """Raise ``SandboxMissingError`` if bubblewrap, which runs as the task's user, could not enter the tasks'
    directories."""
    for directory_on_path in (directory, *directory.parents):
        status = directory_on_path.stat()
        shift = 6 if status.st_uid == uid else 3 if status.st_gid in gids else 0
        if not status.st_mode >> shift & stat.S_IXOTH:
            raise SandboxMissingError(
                f"the sandbox cannot be used: the user of the tasks (number {uid}) may not enter "
                f"{directory_on_path}; "
                "put the tasks elsewhere, open that directory (chmod o+x), or choose 'none'"
            )


def wrapper_command(
    sandbox: SandboxMode, directory: Path, hidden: tuple[Path, ...], uid: int, gids: tuple[int, ...]
) -> tuple[bytes, ...]:
    """Return the words before each command of a runner that set up the sandbox; empty: no sandbox. The tasks'
    user (-1: the daemon's) must reach ``directory``; the mode ``namespace`` hides it, and ``hidden``."""
    if sandbox == "none":
        return ()
    command = sandbox_command() if sandbox == "bwrap" else namespace_command((directory, *hidden))
    if uid > 0:
        check_traversal(directory, uid, gids)
    return command


def wrap_command(
    sandbox: tuple[bytes, ...], home: bytes, workdir: bytes, argv: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """Return the whole command: ``home`` (empty: none) is writable inside, ``workdir`` is the start
    directory. bubblewrap reports to the supervisor whether the program began."""
    binding = (b"--bind", home, home) if home else ()
    report = (_REPORT_OPTION, b"%d" % SANDBOX_REPORT)
    return (*sandbox, *report, *binding, b"--chdir", workdir, b"--", *argv)


def split_environment(env: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the options that set a task's variables for the loader inside, and its other variables.

    bubblewrap itself starts outside the sandbox, with the task's environment: with these variables there, it
    would run code of the task.
    """
    options: list[bytes] = []
    for variable in env:
        if variable.startswith(_LOADER_VARIABLES):
            name, _, value = variable.partition(b"=")
            options += [b"--setenv", name, value]
    return tuple(options), tuple(each for each in env if not each.startswith(_LOADER_VARIABLES))
