"""Real Slurm clusters for tests: Debian's daemons with their own ports, keys and state in one directory.

``slurm_clusters("north", "south")`` gives each name a controller and three nodes that claim more CPUs than
the machine has. Everything is started in the foreground as a child of the test, and only these children (and
the job steps below the directory) are ended. Needs root, because Slurm's node daemons start jobs as their
users.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmrestd", "sbatch", "squeue", "scontrol", "scancel")
PACKAGES = "slurmctld slurmd slurm-client slurmrestd munge slurm-wlm-jwt-plugin slurm-wlm-basic-plugins"
REST_VERSIONS = ("v0.0.36", "v0.0.37", "v0.0.38")
"""What the slurmrestd of Debian 12 has to offer."""
NODE_COUNT = 3
NODE_CPUS = 16
NODE_MEMORY_MIB = 4_000
READY_SECONDS_MAX = 120.0
GONE_SECONDS_MAX = 20.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HERE = "127.0.0.1"

_CONF = """\
ClusterName={name}
SlurmctldHost=localhost({host})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={base}/jwt.key
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
TmpFS={base}/tmp
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
SlurmdTimeout={down_seconds}
SlurmctldTimeout=10
KillWait=2
MessageTimeout={message_seconds}
MinJobAge=60
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu,fpga
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes={first} MaxTime=INFINITE State=UP
"""
_CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=yes
CgroupMountpoint=/sys/fs/cgroup
"""


def missing() -> str:
    """Why there can be no Slurm here, as a sentence; empty if there can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"Slurm is not installed (no {', '.join(absent)}); Debian: apt-get install {PACKAGES}"
    return "" if os.geteuid() == 0 else "Slurm's node daemons need root"


class Slurm:
    """One cluster."""

    def __init__(
        self, base: Path, name: str, munge: Path, *, cgroups: bool, down_seconds: int, message_seconds: int
    ) -> None:
        self.name = name
        self.base = base
        self.conf = base / "slurm.conf"
        unique = secrets.token_hex(3)  # control groups are named after nodes
        self.nodes = tuple(f"{name}-{unique}-{number}" for number in range(1, NODE_COUNT + 1))
        self.rest_socket = base / "rest" / "socket"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._shaken = False
        for directory in ("state", "spool", "log", "rest", "tmp"):
            (base / directory).mkdir(parents=True)
        (base / "rest").chmod(0o777)
        (base / "tmp").chmod(0o1777)
        (base / "jwt.key").write_bytes(secrets.token_bytes(32))
        (base / "jwt.key").chmod(0o600)
        port, *ports = _free_ports(1 + NODE_COUNT)
        lines = [
            f"NodeName={node} NodeHostname=localhost NodeAddr={_HERE} Port={each} CPUs={NODE_CPUS} "
            f"RealMemory={NODE_MEMORY_MIB} State=UNKNOWN "
            + ("Features=big,ssd Gres=gpu:2,fpga:3" if node == self.nodes[0] else "Features=plain")
            for node, each in zip(self.nodes, ports, strict=True)
        ]
        (base / "cgroup.conf").write_text(_CGROUP, encoding="ascii")
        has = f"NodeName={self.nodes[0]} Name="  # a GPU must be a file, and these are always there
        gres = f"{has}gpu File=/dev/null\n{has}gpu File=/dev/zero\n{has}fpga Count=3 Flags=CountOnly\n"
        (base / "gres.conf").write_text(gres, encoding="ascii")
        text = _CONF.format(
            name=name, host=_HERE, port=port, munge=munge, base=base, nodes="\n".join(lines),
            proctrack="cgroup" if cgroups else "linuxproc", task="cgroup" if cgroups else "none",
            first=self.nodes[0], down_seconds=down_seconds, message_seconds=message_seconds,
        )  # fmt: skip
        self.conf.write_text(text, encoding="ascii")

    # --- its daemons ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the controller and all nodes."""
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)

    def start_controller(self) -> None:
        """Start the controller, on the state that the last one left."""
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        self._spawn(node, ["slurmd", "-D", "-f", str(self.conf), "-N", node])

    def start_rest(self, *versions: str) -> None:
        """Start the REST daemon on a socket, with tokens. ``versions``: of its interface, all that it has if
        none are named."""
        spoken = ",".join(f"openapi/{version}" for version in versions or REST_VERSIONS)
        command = ["slurmrestd", "-a", "rest_auth/jwt", "-s", spoken, f"unix:{self.rest_socket}"]
        self._spawn("slurmrestd", command, user=65_534, SLURM_JWT="daemon")
        self.wait(self.rest_socket.exists, "slurmrestd listens")

    def kill_controller(self) -> None:
        """End the controller as a crash would."""
        self.kill("slurmctld")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a daemon: ``slurmctld``, ``slurmrestd`` or a node's name."""
        self._shaken = True
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(GONE_SECONDS_MAX)

    def pause(self, name: str, number: int = signal.SIGSTOP) -> None:
        """Send a daemon a signal that does not end it."""
        self._processes[name].send_signal(number)

    def kill_steps(self, node: str) -> None:
        """End all job steps of a node, as the end of the machine would."""
        mark = f"{self.base}/spool/{node}/".encode()
        for pid in steps_below(self.base, mark):
            parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
            _kill(parent)
        for pid in steps_below(self.base, f"SLURMD_NODENAME={node}\0".encode()):
            _kill(pid)

    def wait_ready(self) -> None:
        """Wait until every node is idle; resume those that the controller drains in between."""

        def idle() -> bool:
            self.resume_drained()
            return self.states() == dict.fromkeys(self.nodes, "idle")

        self.wait(idle, "all nodes are idle")

    def restore(self) -> None:
        """Start again what a test has ended, and resume all nodes."""
        if not self._shaken:
            return
        if "slurmctld" not in self._processes:
            self.start_controller()
        for node in self.nodes:
            if node not in self._processes:
                self.start_node(node)
        self.wait(lambda: self.states() != {}, "the controller is back")
        self.resume()
        self.wait_ready()
        self._shaken = False

    def save_state(self) -> None:
        """Have the controller write all that it knows: a killed one may forget what was done long before."""
        self.kill("slurmctld", signal.SIGTERM)
        self.start_controller()
        self.wait(lambda: self.states() != {}, "the controller is back")

    def drain(self) -> None:
        """Have no node start anything."""
        self._shaken = True
        self.run("scontrol", "update", f"nodename={','.join(self.nodes)}", "state=drain", "reason=test")

    def resume(self) -> None:
        """Have all nodes start jobs again that do not."""
        for node in self.nodes:
            self.tried("scontrol", "update", f"nodename={node}", "state=resume")

    def resume_drained(self) -> None:
        """Do what an administrator does where Slurm has drained nodes by itself: a controller that comes back
        and launches again what it forgot drains the node that says so."""
        for node, state in self.states().items():
            if state.startswith("dr"):
                self.tried("scontrol", "update", f"nodename={node}", "state=resume")

    def close(self) -> None:
        """Let jobs come and wait, and none of them start; those that run go on."""
        self.run("scontrol", "update", "partitionname=batch", "state=down")

    def open(self) -> None:
        """Have jobs start again."""
        self.run("scontrol", "update", "partitionname=batch", "state=up")

    def bar(self, change: str = "minnodes=2") -> None:
        """Let jobs come and wait for something other than room, in a partition that is open."""
        self.run("scontrol", "update", "partitionname=batch", change)

    def unbar(self) -> None:
        """Have jobs start again that were barred."""
        self.run("scontrol", "update", "partitionname=batch", "minnodes=1", "maxtime=infinite")

    def stop(self) -> None:
        """End all that was started here, and the job steps that outlive their daemons."""
        for name in list(self._processes):
            self.kill(name)
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while pids := steps_below(self.base):
            assert time.monotonic() < deadline, f"steps {pids} do not end"
            for pid in pids:
                _kill(pid)

    def _spawn(self, name: str, command: list[str], user: int | None = None, **env: str) -> None:
        with (self.base / "log" / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.base / "log",
                env={"PATH": _PATH, "SLURM_CONF": str(self.conf), **env}, user=user, group=user,
                extra_groups=None if user is None else [],
            )  # fmt: skip

    # --- its commands ---------------------------------------------------------------------------------------

    def run(self, *command: str, text: str = "") -> str:
        """A Slurm command that must succeed."""
        done = self.tried(*command, text=text)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def tried(self, *command: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        """A Slurm command that need not succeed."""
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, cwd="/",
            env={"PATH": _PATH, "SLURM_CONF": str(self.conf)}, timeout=READY_SECONDS_MAX,
        )  # fmt: skip

    def states(self) -> dict[str, str]:
        """The state of each node; empty while the controller does not answer."""
        done = self.tried("sinfo", "-h", "-N", "-p", "batch", "-o", "%N %t")
        words = [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else []
        return {node: state for node, state in words}  # noqa: C416  mypy knows the lengths so

    def submit_foreign(self, script: str, *options: str) -> str:
        """A job of somebody else; its number."""
        out = self.run(
            "sbatch", "--parsable", "-o", "/dev/null", "--mem=10", *options, text=f"#!/bin/sh\n{script}\n"
        )
        return out.strip()

    def state_of(self, job: str) -> str:
        """The state of a job, as Slurm says it."""
        done = self.tried("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        return done.stdout.strip()

    def token(self) -> str:
        """A token of root for the REST daemon."""
        return self.run("scontrol", "token", "username=root", "lifespan=3600").strip().partition("=")[2]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for the outside world, of which there is nothing to await."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not condition():
            seen = f"{what}; {self.states()}; {self.logs()}" if time.monotonic() >= deadline else ""
            assert not seen, f"not in {READY_SECONDS_MAX} s: {seen}"
            time.sleep(0.02)

    def logs(self) -> str:
        """The end of every daemon's log."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-1_500:]}"
            for path in sorted((self.base / "log").glob("*.log"))
        )


def steps_below(base: Path, mark: bytes = b"") -> list[int]:
    """Processes of jobs of this directory's clusters: all of them are told where its configuration is. Or of
    those only that have ``mark`` in their arguments or environment."""
    ours = f"SLURM_CONF={base}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            texts = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
            if ours in texts and mark in texts and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_HERE, 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _munge(base: Path) -> Iterator[Path]:
    """The service by which Slurm's parts know each other; gives its socket."""
    base.mkdir(mode=0o755)
    key, where = base / "key", base / "socket"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = [f"--{name}-file={base / name}" for name in ("pid", "log", "seed")]
    command = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={where}", *files]
    with (base / "output").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": _PATH}
        )
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not where.exists():
            assert time.monotonic() < deadline, (base / "output").read_text(encoding="utf-8")
            time.sleep(0.01)
        yield where
    finally:
        process.kill()
        process.wait(GONE_SECONDS_MAX)


@contextmanager
def slurm_clusters(
    *names: str, cgroups: bool = False, down_seconds: int = 10, message_seconds: int = 5
) -> Iterator[tuple[Slurm, ...]]:
    """So many real clusters, ready for jobs, and gone afterwards. ``down_seconds``: silence of a node's
    daemon after which Slurm calls the node down; ``message_seconds``: after which a message to it counts as
    not delivered."""
    with tempfile.TemporaryDirectory(prefix="hanse-slurm-") as directory:
        base = Path(directory)
        base.chmod(0o755)
        with _munge(base / "munge") as munge:
            clusters = [
                Slurm(
                    base / name, name, munge, cgroups=cgroups, down_seconds=down_seconds,
                    message_seconds=message_seconds,
                )
                for name in names
            ]  # fmt: skip
            try:
                for cluster in clusters:
                    cluster.start()
                for cluster in clusters:
                    cluster.wait_ready()
                yield tuple(clusters)
            finally:
                for cluster in clusters:
                    cluster.stop()
