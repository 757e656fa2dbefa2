"""Slurm driver by its REST daemon, over a socket of this machine or over HTTP, with a token.

Each request has its own connection: requests are few (a poll of Slurm every second or so), and slurmrestd
closes connections at will. The first request negotiates the version (``rest_versions``). No version cancels a
waiting element of an array reliably; so this driver has no arrays, and a submission is one exchange of a few
milliseconds.
"""

import asyncio
import logging
import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.cli import time_limit_minutes
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
from hanse.live.backends.slurm.rest_versions import (
    DOCUMENT_PATH,
    choose_version,
    no_common_message,
    offered_versions,
)
from hanse.live.backends.slurm.settings import SlurmSettings

NOT_FOUND: Final = 404
REQUESTS_MAX: Final = 4
"""Requests at once."""
REQUEST_SECONDS_MAX: Final = 20.0
RESPONSE_BYTES_MAX: Final = 256 << 20
TOKEN_BYTES_MAX: Final = 1 << 14
_UNAVAILABLE_ERRORS: Final = frozenset((-1, 1_800, 1_801, 1_802, 5_004, 5_005, 6_000, 7_000))


log = logging.getLogger(__name__)


class RestDriver:
    """Driver by slurmrestd; see ``driver.SlurmDriver``."""

    has_arrays = False

    def __init__(self, settings: SlurmSettings, user: TaskUser) -> None:
        self._settings = settings
        self._version = settings.api
        """Empty: not negotiated yet."""
        self._user = user
        self._slots = asyncio.Semaphore(REQUESTS_MAX)

    async def submit(self, submission: SlurmSubmission) -> int:
        """Submit a job by ``job/submit``."""
        settings = self._settings
        job: dict[str, object] = {
            "name": submission.name,
            "comment": submission.comment,
            "current_working_directory": "/",
            "environment": {"PATH": ENVIRONMENT_PATH, "LANG": "C.UTF-8"},
            "standard_input": "/dev/null",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
            "no_requeue": True,  # 22.05 accepts ``requeue: false`` and ignores it
            "nodes": 1,
            "tasks": 1,
            "cpus_per_task": submission.cpus,
            "memory_per_node": submission.memory_mib,
        }
        if submission.gres:
            job["gres"] = ",".join(f"{name}:{count}" for name, count in submission.gres)
        if submission.node:
            job["nodelist"] = submission.node
        assert submission.count == 1, "no arrays by REST"
        if settings.partition:
            job["partition"] = settings.partition
        if settings.account:
            job["account"] = settings.account
        if settings.time_limit:
            job["time_limit"] = time_limit_minutes(settings)
        answer = await self._request("POST", "/job/submit", {"job": job, "script": submission.script})
        number = answer.get("job_id")
        if not isinstance(number, int) or not number:
            raise SlurmUnavailableError("slurmrestd gave no job number")
        return number

    async def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        """End jobs by number, each after a check that it still has its name."""
        for job in jobs:
            assert job.name.startswith(f"{NAME_WORD}:"), f"{job.name} is not Hanse's"
            if not job.own_number:
                continue  # it waits in an array that was submitted by commands: it finds itself revoked
            try:
                answer = await self._request("GET", f"/job/{job.own_number}")
                found = [
                    each.get("name")
                    for each in answer.get("jobs") or ()
                    if each.get("job_id") == job.own_number
                ]
                if found == [job.name]:
                    await self._request("DELETE", f"/job/{job.own_number}")
            except SlurmRefusedError:  # it has ended, or is gone
                continue

    async def jobs(self) -> list[SlurmJob]:
        """Return all of Hanse's jobs; those of others are skipped."""
        answer = await self._request("GET", "/jobs")
        return [
            read_job(job)
            for job in answer.get("jobs", ())
            if str(job.get("name", "")).startswith(f"{NAME_WORD}:")
        ]

    async def nodes(self) -> list[SlurmNode]:
        """Return all nodes."""
        answer = await self._request("GET", "/nodes")
        return [read_node(node) for node in answer.get("nodes", ())]

    async def partitions(self) -> list[SlurmPartition]:
        """Return all partitions."""
        answer = await self._request("GET", "/partitions")
        return [read_partition(partition) for partition in answer.get("partitions", ())]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def _request(self, verb: str, path: str, body: object = None) -> dict[str, Any]:
        if not self._version:
            versions = offered_versions(await self._request_raw("GET", DOCUMENT_PATH))
            chosen = choose_version(versions)
            if chosen is None:
                raise SlurmUnavailableError(no_common_message(versions))
            log.info("slurmrestd offers %s: speaking %s", ", ".join(versions), chosen)
            self._version = chosen
        return await self._request_raw(verb, f"/slurm/{self._version}{path}", body)

    async def _request_raw(self, verb: str, path: str, body: object = None) -> dict[str, Any]:
        async with self._slots:
            try:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    status, content = await self._send_request(verb, path, body)
            except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
                raise SlurmUnavailableError(f"slurmrestd: {error or type(error).__name__}") from None
        try:
            answer = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.MsgspecError:
            if status == NOT_FOUND:  # another slurmrestd, perhaps, with other versions
                self._version = self._settings.api
            words = content[:200].decode(errors="replace")
            raise SlurmUnavailableError(f"slurmrestd answered {status}: {words}") from None
        errors = answer.get("errors") or []
        is_accepted = bool(answer.get("job_id"))  # by a closed node, for example: its error is a warning then
        if (errors or status >= 400) and not is_accepted:
            complaint = "; ".join(
                str(each.get("error") or each.get("description") or each) for each in errors
            )
            numbers = [each.get("error_number", each.get("error_code")) for each in errors]
            is_unavailable = (status >= 500 and not errors) or any(
                number in _UNAVAILABLE_ERRORS for number in numbers
            )
            if is_unavailable:
                raise SlurmUnavailableError(complaint or f"slurmrestd answered {status}")
            raise error_of_complaint(complaint or f"slurmrestd answered {status}")
        return answer

    async def _send_request(self, verb: str, path: str, body: object) -> tuple[int, bytes]:
        """Send one request on a connection of its own."""
        content = b"" if body is None else msgspec.json.encode(body)
        lines = [f"{verb} {path} HTTP/1.1", "Host: slurm", "Connection: close", "Accept: application/json"]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in self._credentials().items()]
        reader, writer = await self._connect()
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            await writer.drain()
            return await _read_response(reader)
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = self._settings.url
        if url.startswith("unix:"):
            return await asyncio.open_unix_connection(url.removeprefix("unix:"))
        address = urlsplit(url)
        if not address.hostname or not address.port:
            raise OSError(f"{url!r} is neither unix:PATH nor http://HOST:PORT")
        return await asyncio.open_connection(
            address.hostname, address.port, ssl=address.scheme == "https" or None
        )

    def _credentials(self) -> Mapping[str, str]:
        if not self._settings.token_file:
            return {}
        token = Path(self._settings.token_file).read_text(encoding="ascii")[:TOKEN_BYTES_MAX].strip()
        uid = self._user.uid
        user = self._settings.token_user or pwd.getpwuid(uid if uid >= 0 else os.geteuid()).pw_name
        return {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token.removeprefix("SLURM_JWT=")}


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return status and content of a response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    fields = {
        name.strip().lower(): value.strip()
        for name, mark, value in (line.partition(":") for line in head[1:])
        if mark
    }
    if fields.get("transfer-encoding", "").lower() == "chunked":
        pieces, total = [], 0
        while size := int((await reader.readline()).split(b";")[0], 16):
            total += size
            if total > RESPONSE_BYTES_MAX:
                raise ValueError("the answer is too long")
            pieces.append(await reader.readexactly(size))
            await reader.readline()
        return status, b"".join(pieces)
    length = fields.get("content-length")
    if length is not None:
        if int(length) > RESPONSE_BYTES_MAX:
            raise ValueError("the answer is too long")
        return status, await reader.readexactly(int(length))
    return status, await reader.read()


def read_job(job: Mapping[str, Any]) -> SlurmJob:
    """Parse a job of slurmrestd's."""
    array = int(job.get("array_job_id") or 0)
    element = job.get("array_task_id")
    rest_of_array = array and element is None
    requested = str(job.get("tres_alloc_str") or job.get("tres_req_str") or "")
    amounts = dict(part.partition("=")[::2] for part in requested.split(",") if "=" in part)
    gres = parse_gres(",".join(f"{name}={count}" for name, count in amounts.items() if "gres/" in name))
    return SlurmJob(
        number=array or int(job["job_id"]),
        element=-2 if rest_of_array else (int(element) if array and element is not None else -1),
        own_number=0 if rest_of_array else int(job["job_id"]),
        name=str(job["name"]),
        state=str(job["job_state"]),
        node=str(job.get("nodes") or ""),
        cpus=int(job.get("cpus") or 0),
        memory=int(job.get("memory_per_node") or 0) << 20,
        gres=gres or parse_gres(str(job.get("tres_per_node") or "")),
        reason=clean_reason(str(job.get("state_description") or job.get("state_reason") or "")),
        launched_at=_launch_time(job),
    )


def _launch_time(job: Mapping[str, Any]) -> int:
    """Return the launch time; for a pending job Slurm gives a guess."""
    return 0 if job["job_state"] in PENDING_STATES else int(job.get("start_time") or 0)


def read_partition(partition: Mapping[str, Any]) -> SlurmPartition:
    """Parse a partition of slurmrestd's."""
    return SlurmPartition(
        name=str(partition["name"]),
        is_open=str(partition.get("state") or OPEN_STATE) == OPEN_STATE,
        is_default="default" in (partition.get("flags") or ()),
    )


def read_node(node: Mapping[str, Any]) -> SlurmNode:
    """Parse a node of slurmrestd's."""
    words = [str(node.get("state", "unknown")), *map(str, node.get("state_flags") or ())]
    return SlurmNode(
        name=str(node["name"]),
        is_open=not any(word.upper() in CLOSED_STATES for word in words),
        cpus=int(node.get("cpus") or 0),
        memory=int(node.get("real_memory") or 0) << 20,
        gres=parse_gres(str(node.get("gres") or "")),
        cpus_used=int(node.get("alloc_cpus") or 0),
        memory_used=int(node.get("alloc_memory") or 0) << 20,
        gres_used=parse_gres(str(node.get("gres_used") or "")),
        partitions=tuple(sorted(map(str, node.get("partitions") or ()))),
        features=tuple(sorted(filter(None, str(node.get("active_features") or "").split(",")))),
        arch=str(node.get("architecture") or ""),
        system=str(node.get("operating_system") or "").partition(" ")[0],
        state="+".join(words).upper(),
        reason=clean_reason(str(node.get("reason") or "")),
    )
