"""MPICH's ``mpiexec`` inside a gang, without ssh: each task starts the ranks that belong to it.

``mpiexec -launcher manual`` starts nothing itself. It prints one command for each host, which somebody else
has to start there, and waits until these report. Rank 0 of the gang runs it and gives each task its command
over the gang's port; each task runs its command, which starts one rank of the MPI program. If a task ends
early, ``mpiexec`` ends all others.
"""

import os
import shlex
import socket
import subprocess
import sys
import threading
import time

SECONDS_MAX = 60.0
"""Time within which rank 0 must answer."""
RANK = int(os.environ["HANSE_RANK"])
SIZE = int(os.environ["HANSE_WORLD_SIZE"])
ADDRESS = (os.environ["HANSE_MASTER_ADDR"], int(os.environ["HANSE_MASTER_PORT"]))


def start_mpiexec(program: list[str]) -> tuple[subprocess.Popen[str], list[str]]:
    """Start ``mpiexec``; return it and the command for each rank."""
    names = ",".join(f"rank{rank}" for rank in range(SIZE))  # one place for each task; nobody looks them up
    command = ["mpiexec", "-launcher", "manual", "-genvnone", "-localhost", ADDRESS[0], "-hosts", names]
    command += ["-n", str(SIZE), *program]
    mpiexec = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603  its own program
    assert mpiexec.stdout is not None
    commands = []
    for line in mpiexec.stdout:
        if line.startswith("HYDRA_LAUNCH_END"):
            break
        commands.append(line.removeprefix("HYDRA_LAUNCH: ").strip())
    return mpiexec, commands


def give_commands(server: socket.socket, commands: list[str]) -> None:
    """Give each task that asks with its rank its command."""
    while True:
        asking, _ = server.accept()
        with asking, asking.makefile("rw") as line:
            line.write(commands[int(line.readline())] + "\n")


def ask_for_command() -> str:
    """Return the command for this rank, as soon as rank 0 gives it."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with socket.create_connection(ADDRESS, SECONDS_MAX) as asking, asking.makefile("rw") as line:
                line.write(f"{RANK}\n")
                line.flush()
                command = line.readline().strip()
            if command:
                return command
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def main() -> int:
    """Run the program behind the script's name on all ranks; return the exit code of this task."""
    if RANK:
        return subprocess.call(shlex.split(ask_for_command()))  # noqa: S603  of its own gang
    mpiexec, commands = start_mpiexec(sys.argv[1:])
    if len(commands) != SIZE:
        return mpiexec.wait() or 1
    server = socket.create_server(ADDRESS)
    threading.Thread(target=give_commands, args=(server, commands), daemon=True).start()
    own = subprocess.Popen(shlex.split(commands[0]))  # noqa: S603  of mpiexec
    assert mpiexec.stdout is not None
    for line in mpiexec.stdout:  # what all ranks write
        sys.stdout.write(line)
        sys.stdout.flush()
    return mpiexec.wait() or own.wait()


if __name__ == "__main__":
    sys.exit(main())
