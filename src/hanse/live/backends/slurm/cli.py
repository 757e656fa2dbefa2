"""Slurm driver by commands.

Every command has a time limit, and only a few run at once. Their environment is made here: ``sbatch`` passes
its own on to the job, and ``--export`` with a value would make the node run a login shell first.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.driver import (
    CLOSED_STATES,
    ENVIRONMENT_PATH,
    OPEN_STATE,
    PENDING_STATES,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmRefusedError,
    SlurmSubmission,
    SlurmUnavailableError,
    clean_reason,
    error_of_complaint,
    parse_gres,
)
from hanse.live.backends.slurm.job_names import NAME_WORD
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.live.child_stdin_file import open_child_stdin

COMMANDS_MAX: Final = 4
"""Commands at once."""
COMMAND_SECONDS_MAX: Final = 20.0
OUTPUT_BYTES_MAX: Final = 64 << 20
"""Bytes of output of one command; more is a mistake."""
CANCELS_MAX: Final = 100
"""Jobs named in one command."""
_JOB_FIELDS: Final = "%F|%K|%A|%T|%N|%C|%m|%b|%S|%r|%j"
_UNIX_TIMES: Final = {"SLURM_TIME_FORMAT": "%s"}
"""Makes ``squeue`` write times as unix seconds. Not for ``sbatch``: jobs inherit from it."""
_SUFFIXES: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z:_]+)=")


class CliDriver:
    """Driver by ``sbatch``, ``scancel``, ``squeue`` and ``scontrol``; see ``driver.SlurmDriver``."""

    has_arrays = True

    def __init__(self, settings: SlurmSettings, user: TaskUser) -> None:
        self._settings = settings
        self._environment = {"PATH": ENVIRONMENT_PATH, "LANG": "C.UTF-8"}
        if settings.conf:
            self._environment["SLURM_CONF"] = settings.conf
        self._user = user
        self._slots = asyncio.Semaphore(COMMANDS_MAX)

    async def submit(self, submission: SlurmSubmission) -> int:
        """Submit by ``sbatch``, with the script on its input."""
        options = [
            "--parsable", "--no-requeue", "--nodes=1", "--ntasks=1", "--chdir=/", "--open-mode=append",
            "--input=/dev/null", "--output=/dev/null", "--error=/dev/null",
            f"--job-name={submission.name}", f"--comment={submission.comment}",
            f"--cpus-per-task={submission.cpus}", f"--mem={submission.memory_mib}M",
        ]  # fmt: skip
        if submission.gres:
            options.append("--gres=" + ",".join(f"{name}:{count}" for name, count in submission.gres))
        if submission.node:
            options.append(f"--nodelist={submission.node}")
        if submission.count > 1:
            options.append(f"--array=0-{submission.count - 1}")
        if self._settings.partition:
            options.append(f"--partition={self._settings.partition}")
        if self._settings.account:
            options.append(f"--account={self._settings.account}")
        if self._settings.time_limit:
            options.append(f"--time={time_limit_minutes(self._settings)}")
        if self._user.uid >= 0:  # without a group of its own the job would have the daemon's
            options += [f"--uid={self._user.uid}", f"--gid={self._user.gid}"]
        answer = await self._run(["sbatch", *options], submission.script)
        number = answer.strip().partition(";")[0]
        if not number.isdigit():
            raise SlurmUnavailableError(f"sbatch answered {answer[:100]!r}")
        return int(number)

    async def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        """End jobs by number *and* name: by now a number may belong to a job of others.

        Of an array whose elements wait, ``scancel`` with a name ends all of them, for any named elements. So
        those are ended by number alone, right after a check of the name.
        """
        by_name: dict[str, list[SlurmJob]] = {}
        for job in jobs:
            by_name.setdefault(job.name, []).append(job)
        for name, some in by_name.items():
            assert name.startswith(f"{NAME_WORD}:"), f"{name} is not Hanse's"
            waiting = [job for job in some if job.element >= 0 and job.state in PENDING_STATES]
            await self._cancel([f"--name={name}"], [job for job in some if job not in waiting])
            for number in dict.fromkeys(job.number for job in waiting):
                if await self._names_of(number) == {name}:
                    await self._cancel([], [job for job in waiting if job.number == number])

    async def _names_of(self, number: int) -> set[str]:
        """Return the names of a job: one, or none if the job is gone."""
        try:
            return set((await self._run(["squeue", "--noheader", f"--jobs={number}", "-o", "%j"])).split())
        except SlurmRefusedError:
            return set()

    async def _cancel(self, options: list[str], jobs: Sequence[SlurmJob]) -> None:
        references = [job.reference for job in jobs]
        for begin in range(0, len(references), CANCELS_MAX):
            await self._run(["scancel", "--quiet", *options, *references[begin : begin + CANCELS_MAX]])

    async def jobs(self) -> list[SlurmJob]:
        """Return the jobs by one ``squeue``, of the runner's user alone: the controller sends no others."""
        uid = self._user.uid if self._user.uid >= 0 else os.geteuid()
        command = ["squeue", "--noheader", "--array", "--states=all", f"--user={uid}", "-o", _JOB_FIELDS]
        found = [read_job(line) for line in (await self._run(command, more=_UNIX_TIMES)).splitlines()]
        return [job for job in found if job is not None and job.name.startswith(f"{NAME_WORD}:")]

    async def nodes(self) -> list[SlurmNode]:
        """Return the nodes by one ``scontrol show node``."""
        text = await self._run(["scontrol", "show", "node", "--details", "--oneliner"])
        return [read_node(line) for line in text.splitlines() if line.startswith("NodeName=")]

    async def partitions(self) -> list[SlurmPartition]:
        """Return the partitions, hidden ones too, by one ``scontrol show partition``."""
        text = await self._run(["scontrol", "show", "partition", "--all", "--oneliner"])
        return [read_partition(line) for line in text.splitlines() if line.startswith("PartitionName=")]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def _run(self, command: list[str], text: str = "", more: Mapping[str, str] | None = None) -> str:
        conf = self._settings.conf
        if conf and not Path(conf).is_file():  # Slurm's commands would search for it for a minute
            raise SlurmUnavailableError(f"there is no file {conf}")
        async with self._slots:
            try:
                with open_child_stdin(text.encode()) as stdin:
                    process = await asyncio.create_subprocess_exec(
                        *command, stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                        env={**self._environment, **(more or {})}, cwd="/", start_new_session=True,
                    )  # fmt: skip
            except FileNotFoundError:
                raise SlurmUnavailableError(f"{command[0]} is not installed") from None
            except OSError as error:  # this machine has no process or memory left for it
                raise SlurmUnavailableError(f"{command[0]} cannot be started: {error}") from None
            try:
                async with asyncio.timeout(COMMAND_SECONDS_MAX):
                    out, err = await process.communicate()
            except TimeoutError:
                raise SlurmUnavailableError(f"{command[0]} timed out") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await asyncio.shield(process.wait())
        if process.returncode == 0:
            return out.decode(errors="replace")
        complaint = " ".join(err.decode(errors="replace").split())[:300] or f"exit code {process.returncode}"
        raise error_of_complaint(complaint)


def time_limit_minutes(settings: SlurmSettings) -> int:
    """Return the time limit in minutes, Slurm's unit, rounded up."""
    return -(-settings.time_limit // 60_000_000)


def read_job(line: str) -> SlurmJob | None:
    """Parse a line of ``squeue`` in ``_JOB_FIELDS``; return None for anything else."""
    fields = line.split("|", 10)
    if len(fields) < 11 or not fields[0].isdigit():
        return None
    number, element, own, state, node, cpus, memory, gres, launched, reason, name = fields
    return SlurmJob(
        number=int(number),
        element=int(element) if element.isdigit() else -1,
        own_number=int(own) if own.isdigit() else 0,
        name=name,
        state=state,
        node=node,
        cpus=int(cpus) if cpus.isdigit() else 0,
        memory=_parse_bytes(memory),
        gres=parse_gres(gres),
        reason=clean_reason(reason),
        launched_at=_parse_whole(launched) if state not in PENDING_STATES else 0,  # else it is a guess
    )


def _parse_facts(line: str) -> dict[str, str]:
    """Parse a line of ``scontrol show -o``: words with ``=``, of which some values have spaces."""
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    return {mark[1]: line[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}


def read_partition(line: str) -> SlurmPartition:
    """Parse a line of ``scontrol show partition -o``."""
    facts = _parse_facts(line)
    return SlurmPartition(
        facts["PartitionName"], facts.get("State", OPEN_STATE) == OPEN_STATE, facts.get("Default") == "YES"
    )


def read_node(line: str) -> SlurmNode:
    """Parse a line of ``scontrol show node -o``."""
    facts = _parse_facts(line)
    states = facts.get("State", "UNKNOWN").upper()
    words = [word.rstrip("*~#!%$@^-") for word in states.split("+")]
    is_open = "*" not in states and not any(word in CLOSED_STATES for word in words)
    return SlurmNode(
        name=facts["NodeName"],
        is_open=is_open,
        cpus=_parse_whole(facts.get("CPUEfctv") or facts.get("CPUTot", "0")),
        memory=(_parse_whole(facts.get("RealMemory", "0")) - _parse_whole(facts.get("MemSpecLimit", "0")))
        << 20,
        gres=parse_gres(facts.get("Gres", "")),
        cpus_used=_parse_whole(facts.get("CPUAlloc", "0")),
        memory_used=_parse_whole(facts.get("AllocMem", "0")) << 20,
        gres_used=parse_gres(facts.get("GresUsed", "")),
        partitions=_parse_words(facts.get("Partitions", "")),
        features=_parse_words(facts.get("ActiveFeatures", "")),
        arch=facts.get("Arch", ""),
        system=facts.get("OS", "").partition(" ")[0],
        state=states,
        reason=clean_reason(facts.get("Reason", "")),
    )


def _parse_words(text: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in text.split(",") if word and word != "(null)"))


def _parse_whole(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _parse_bytes(text: str) -> int:
    """Return ``64M`` or ``1.50G`` in bytes; a plain number is in MiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)[cn]?", text)
    return int(float(found[1]) * _SUFFIXES[found[2] or "M"]) if found else 0
