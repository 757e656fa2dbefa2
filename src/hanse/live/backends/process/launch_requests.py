"""Encoding of a launch as a start request: program, environment, user, limits.

Tasks of one group differ in a few variables only, so the shared part is encoded once.
"""

import os
import pwd
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.backends.place_variables import PLACE_VARIABLES, place_variables
from hanse.live.backends.process.cgroups import TaskLimits
from hanse.live.backends.process.default_memory import MemoryDefault
from hanse.live.backends.process.devices.device_environment import DEVICES, device_variables
from hanse.live.backends.process.devices.device_fence import DeviceFence
from hanse.live.backends.process.launcher_protocol import (
    ALONE,
    FRESH_DIRECTORY,
    HAS_KEY,
    NO_NEW_PRIVILEGES,
    REQUEST_BYTES_MAX,
    SANDBOXED,
    StartTemplate,
    start_request,
)
from hanse.live.backends.process.sandbox import split_environment, wrap_command
from hanse.model.attempt_key_derivation import derive_attempt_key
from hanse.model.effects import LaunchAttempt
from hanse.model.hardware.devices import Device
from hanse.model.ids import index_of, job_of, job_text
from hanse.model.program import Program, decode_program
from hanse.model.resources import Resources

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LANG: Final = "C.UTF-8"
SHARED_MAX: Final = 256
"""Encoded programs kept for the next task of the same group; above this number all are dropped."""
META_BYTES_MAX: Final = 1 << 15


class TaskUser(msgspec.Struct, frozen=True):
    """User that a task runs as."""

    uid: int = -1
    """-1: the daemon's user."""
    gid: int = -1
    gids: tuple[int, ...] = ()


class LaunchRefusal(msgspec.Struct, frozen=True):
    """Refusal of a program that cannot be started."""

    note: str


class AttemptMetadata(msgspec.Struct, frozen=True, array_like=True):
    """Data of an attempt that a restarted daemon needs."""

    shard: str
    is_movable: bool
    uid: int = -1
    """The job's own user id; -1: it has none."""
    devices: tuple[str, ...] = ()
    """Identities of its devices."""


_decode_metadata: Final = msgspec.msgpack.Decoder(AttemptMetadata).decode


def decode_metadata(data: bytes) -> AttemptMetadata:
    """Return the metadata of a launcher's report."""
    return _decode_metadata(data)


class AttemptDevices(msgspec.Struct, frozen=True):
    """Devices of an attempt."""

    assigned: tuple[Device, ...] = ()
    names: tuple[str, ...] = ()
    """Their identities."""
    of_node: tuple[Device, ...] = ()
    """All devices of its node."""


class _SharedFields(msgspec.Struct, frozen=True):
    """The part that tasks of one group have in common."""

    fixed: StartTemplate
    argv: tuple[bytes, ...]
    workdir: bytes
    env: tuple[bytes, ...]
    sandbox: tuple[bytes, ...]
    """Command that sets up the sandbox; empty: there is none."""
    has_home: bool
    secret: bytes


def find_task_user(user: str | int | None) -> TaskUser:
    """Return the user of a name or number, with its groups.

    Only root can become another user: for others the default (``nobody``) means the daemon's user. Raises
    ``ValueError`` for users that do not exist or that the daemon cannot become.
    """
    if os.geteuid() != 0:
        if user not in (None, "nobody", os.geteuid()):
            raise ValueError(f"tasks can run as {user!r} only if the daemon is started as root")
        return TaskUser()
    if user is None:
        return TaskUser()
    try:
        entry = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
    except KeyError:
        if isinstance(user, int):
            return TaskUser(user, user)
        raise ValueError(f"there is no user {user!r} to run tasks as") from None
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return TaskUser(entry.pw_uid, entry.pw_gid, tuple(groups))


class StartRequestEncoder:
    """Encoder of start requests for one runner."""

    def __init__(
        self,
        directory: Path,
        cluster: str,
        user: TaskUser,
        limits: TaskLimits,
        sandbox: tuple[bytes, ...],
        output_bytes_max: int,
        pids_max: int,
        memory_default: MemoryDefault,
    ) -> None:
        self._work = os.fsencode(directory / "work") + b"/"
        self._cluster = cluster
        self._user = user
        self._limits = limits
        self._sandbox = sandbox
        self._output_bytes_max = output_bytes_max
        self._pids_max = pids_max
        self._memory_default = memory_default
        self.hides_processes = False
        """True if tasks see no processes of other users."""
        self.fence = DeviceFence((), "none", directory)
        """Fence around the devices of other tasks."""
        self._shared: dict[tuple[object, ...], _SharedFields | LaunchRefusal] = {}

    def encode(
        self, launch: LaunchAttempt, uid: int = -1, devices: AttemptDevices | None = None
    ) -> bytes | LaunchRefusal:
        """Return the request that starts this attempt; ``uid``: the job's own, instead of the runner's."""
        devices = devices or AttemptDevices()
        key = (launch.payload, launch.node, launch.size, launch.shard, launch.is_movable, uid, devices.names)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._encode_shared(launch, uid, devices)
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared[key] = shared
        if isinstance(shared, LaunchRefusal):
            return shared
        task, attempt = launch.task, launch.attempt
        job, index = job_text(job_of(task)), index_of(task)
        home = shared.workdir or b"%s%d.%d" % (self._work, task, attempt)
        env = [
            *shared.env,
            b"HANSE_JOB=" + job.encode(),
            b"HANSE_TASK=%d" % index,
            b"HANSE_ATTEMPT=%d" % attempt,
            *[f"{name}={value}".encode() for name, value in place_variables(launch)],
        ]
        if not shared.has_home:
            env.append(b"HOME=" + home)
        argv = shared.argv
        if shared.sandbox:
            argv = wrap_command(shared.sandbox, b"" if shared.workdir else home, home, argv)
        # In a sandbox the working directory may exist inside only.
        start_directory = b"/" if self._sandbox and shared.workdir else home
        key_text = (
            derive_attempt_key(shared.secret, job, index, attempt).hex().encode() if shared.secret else b""
        )
        request = start_request(
            task, attempt, launch.until, shared.fixed, start_directory, argv, env, key_text
        )
        return request if len(request) <= REQUEST_BYTES_MAX else LaunchRefusal("the command is too long")

    def _encode_shared(
        self, launch: LaunchAttempt, uid: int, devices: AttemptDevices
    ) -> _SharedFields | LaunchRefusal:
        program = decode_program(launch.payload)
        if program is None:
            return LaunchRefusal("the payload is not a command")
        env = self._environment(program, launch, devices)
        texts = (*program.argv, program.workdir, *env, *env.values())
        if any("\0" in text for text in texts) or any(not name or "=" in name for name in env):
            return LaunchRefusal("the command has a NUL character or a bad variable name")
        variables = tuple(f"{name}={value}".encode() for name, value in env.items())
        sandbox: tuple[bytes, ...] = ()
        if self._sandbox:
            options, variables = split_environment(variables)
            sandbox = (*self._sandbox, *self.fence.sandbox_words(devices.assigned), *options)
        meta = msgspec.msgpack.encode(AttemptMetadata(launch.shard, launch.is_movable, uid, devices.names))
        assert len(meta) <= META_BYTES_MAX, f"an estate's name of {len(meta)} bytes"
        return _SharedFields(
            self._start_template(
                program, launch, meta, TaskUser(uid, uid) if uid >= 0 else self._user, devices.assigned
            ),
            tuple(argument.encode() for argument in program.argv),
            program.workdir.encode(),
            variables,
            sandbox,
            "HOME" in env,
            program.secret,
        )

    def _start_template(
        self,
        program: Program,
        launch: LaunchAttempt,
        meta: bytes,
        user: TaskUser,
        assigned: tuple[Device, ...],
    ) -> StartTemplate:
        plain = self._limits.driver == "rlimit"
        flags = 0 if program.workdir else FRESH_DIRECTORY
        if self._sandbox:
            flags |= SANDBOXED
        if program.secret:
            flags |= HAS_KEY
        if user.uid >= 0:
            flags |= NO_NEW_PRIVILEGES
        if self.hides_processes:
            flags |= ALONE
        return StartTemplate(
            output_max=self._output_bytes_max,
            data_max=launch.size.memory if plain else 0,
            processes_max=_count_threads(user) + self._pids_max if plain else 0,
            uid=user.uid,
            gid=user.gid,
            gids=user.gids,
            flags=flags,
            meta=meta,
            groups=self._limits.groups(
                self._limited_size(launch), self._pids_max, self.fence.group_settings(assigned)
            ),
        )

    def default_memory(self, launch: LaunchAttempt) -> int:
        """Return the limit in bytes of its control groups if it asked for no memory; 0: there is none."""
        return self._memory_default.limit(launch.node, launch.size) if self._limits.bases else 0

    def _limited_size(self, launch: LaunchAttempt) -> Resources:
        default = self.default_memory(launch)
        return msgspec.structs.replace(launch.size, memory=default) if default else launch.size

    def _environment(
        self, program: Program, launch: LaunchAttempt, devices: AttemptDevices
    ) -> dict[str, str]:
        """Return the variables shared by a group; Hanse's come last, so no task can pose as another."""
        whole, rest = divmod(launch.size.cpu, 1_000)
        cpus = f"{whole}.{rest:03}".rstrip("0").rstrip(".")
        env = {"PATH": PATH, "LANG": LANG, **dict(program.env)}
        env.update(
            HANSE_CLUSTER=self._cluster,
            HANSE_NODE=str(launch.node),
            HANSE_CPUS=cpus,
            HANSE_GPUS=str(launch.size.gpu),
        )
        own = ("HANSE_JOB", "HANSE_TASK", "HANSE_ATTEMPT", *PLACE_VARIABLES)
        for name in [each for each in env if each in own or each.startswith(DEVICES)]:
            del env[name]
        env.update(device_variables(devices.assigned, devices.of_node))
        return env


def _count_threads(user: TaskUser) -> int:
    """Return the threads that this user has now: RLIMIT_NPROC counts all of a user's, not a task's."""
    uid = user.uid if user.uid >= 0 else os.geteuid()
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if entry.stat().st_uid == uid:
                total += sum(1 for _ in (entry / "task").iterdir())
        except OSError:  # it has ended meanwhile
            continue
    return total
