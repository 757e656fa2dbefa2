"""What one task tries on another: a program that says of each attack whether it was refused or done.

Its arguments are the victim's process number, working directory and file of output. The victim has ``tok123``
in its environment, and a file ``mine`` in its working directory.
"""

PYTHON = "/usr/bin/python3"
ATTACK = """
import ctypes, os, signal, sys
pid, work, output = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)

def trace():
    if libc.ptrace(16, pid, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, None, None)

def memory():
    with open(f"/proc/{pid}/maps") as maps:
        place = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(place)
        assert file.read(4)

def memory_by_call():
    with open("/proc/self/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/stat") as stat:  # the place of its stack, which is not told to everybody
        stack = int(stat.read().rpartition(")")[2].split()[25])
    here = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    there = (ctypes.c_size_t * 2)(stack or start, 8)
    if libc.process_vm_readv(pid, here, 1, there, 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")

def written():
    with open(f"{work}/theirs", "w"):
        pass

def any_environ():
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                if b"tok123" in open(f"/proc/{name}/environ", "rb").read():
                    return
            except OSError:
                pass
    raise LookupError

attacks = {
    "listed": lambda: os.listdir("/proc").index(str(pid)),
    "command line": lambda: open(f"/proc/{pid}/cmdline", "rb").read().index(b"sleep"),
    "any environ": any_environ,
    "environ": lambda: open(f"/proc/{pid}/environ", "rb").read().index(b"tok123"),
    "cwd": lambda: os.listdir(f"/proc/{pid}/cwd"),
    "descriptors": lambda: os.listdir(f"/proc/{pid}/fd"),
    "memory": memory,
    "memory by call": memory_by_call,
    "root": lambda: os.listdir(f"/proc/{pid}/root/"),
    "program": lambda: os.readlink(f"/proc/{pid}/exe"),
    "directory": lambda: os.listdir(work),
    "file": lambda: open(f"{work}/mine").read(),
    "write": written,
    "output": lambda: open(output).read(),
    "ptrace": trace,
    "signal": lambda: os.kill(pid, signal.SIGCONT),
    "limit": lambda: libc.prlimit(pid, 7, None, ctypes.create_string_buffer(16)) and 1 / 0,
}
for name, attack in attacks.items():
    try:
        attack()
    except Exception as error:
        print(name, "refused", type(error).__name__, sep=":", flush=True)
    else:
        print(name, "done", sep=":", flush=True)
"""
OPEN_IN_A_JOB = {
    "listed",
    "command line",
    "environ",
    "any environ",
    "cwd",
    "directory",
    "file",
    "write",
    "signal",
    "root",
    "program",
}
"""What tasks of one job can do to each other; tracing may be closed to them by the machine's settings."""
ALL = OPEN_IN_A_JOB | {"descriptors", "memory", "memory by call", "output", "ptrace", "limit"}
