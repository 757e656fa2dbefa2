"""Output of tasks, fetched from the cluster where they ran, or from the machine of a separate runner."""

import threading
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from hanse.api.rows import TaskRow
from hanse.client.client import Client
from hanse.client.endpoints import Doors, refusal
from hanse.client.errors import warn
from hanse.client.transport import ANSWER_SECONDS_MAX, Reply, SilentError

LINE_BYTES_MAX: Final = 64 << 10
"""Longest line that is passed on as a whole."""
RUNNER_HEADER: Final = "x-hanse-runner"
"""Header of a redirection (307): the runner that has the output on its machine."""


class Ask(NamedTuple):
    """Request for one stream of one attempt."""

    stream: str
    attempt: int | None = None
    following: bool = False


class Sink:
    """Target of output: line by line with a prefix, or as it comes if there is no prefix."""

    _lock: Final = threading.Lock()

    def __init__(self, target: BinaryIO, mark: str) -> None:
        self._target = target
        self._mark = mark.encode()
        self._rest = b""
        self.received = 0
        """Bytes received so far: the offset after an interruption."""
        self.complaint = ""
        """Last warning, which is not repeated at every attempt."""

    def write(self, piece: bytes) -> None:
        """Write output. With a prefix, an unfinished line waits for its end."""
        self.received += len(piece)
        if not self._mark:
            self._put(piece)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._put(b"".join(self._mark + line + b"\n" for line in lines))

    def close(self) -> None:
        """Write a last line that has no end."""
        if self._rest:
            self._put(self._mark + self._rest + b"\n")
            self._rest = b""

    def _put(self, data: bytes) -> None:
        with Sink._lock:
            self._target.write(data)
            self._target.flush()


def copy(doors: Doors, task: str, row: TaskRow, ask: Ask, sink: Sink) -> bool:
    """Copy one stream of a task, from the offset of ``sink``; True if all of it was there."""
    latest = ask.attempt in (None, row.attempt)
    clusters = [row.cluster] if row.cluster and latest else list(doors.context.clusters)
    query = {
        "attempt": str(ask.attempt or row.attempt),
        "stream": ask.stream,
        "offset": str(sink.received),
        "follow": "1" if ask.following else "0",
    }
    seconds = None if ask.following else ANSWER_SECONDS_MAX
    silent: list[str] = []
    for cluster in clusters:
        try:
            for node in _machines(doors, cluster, row.node if latest else None):
                target = f"/v1/logs/{quote(task)}?{urlencode({**query, **node})}"
                reply, pieces = _opened(doors, cluster, target, seconds)
                if reply.status == 404:
                    continue
                if reply.status != 200:
                    raise refusal(reply)
                for piece in pieces:
                    sink.write(piece)
                sink.close()
                return True
        except _RunnerSilentError as error:
            silent.append(str(error))
        except SilentError as error:
            silent.append(f"the cluster {cluster} does not answer ({error})")
    complaint = "; ".join(silent)
    if complaint and complaint != sink.complaint:
        warn(f"{task}: its output cannot be shown now: {complaint}")
        sink.complaint = complaint
    return False


class _RunnerSilentError(SilentError):
    """Failure of a runner on another machine, not of the cluster's warden, to answer."""


def _machines(doors: Doors, cluster: str, node: int | None) -> Iterator[dict[str, str]]:
    """Yield the nodes to name when asking a cluster: the task's own, or one of each machine if unknown."""
    if node is not None:
        yield {"node": str(node)}
        return
    yield {}
    told: dict[str, int] = {}
    for one in Client(doors).cluster(cluster).nodes:
        told.setdefault(one.runner, one.node)
    if len(told) > 1:
        yield from ({"node": str(number)} for number in told.values())


def _opened(doors: Doors, cluster: str, target: str, seconds: float | None) -> tuple[Reply, Iterator[bytes]]:
    """Open an output at a cluster's endpoint, or at that of the runner to which it redirects."""
    reply, pieces = doors.cluster(cluster).stream(target, seconds)
    runner = reply.headers.get(RUNNER_HEADER, "")
    if reply.status != 307 or not runner:
        return reply, pieces
    there = urlsplit(reply.headers.get("location", ""))
    try:
        return doors.runner(runner, there.netloc).stream(target, seconds)
    except SilentError as error:
        sentence = f"the runner {runner} of the cluster {cluster} does not answer ({error})"
        raise _RunnerSilentError(sentence, error.sent) from None
