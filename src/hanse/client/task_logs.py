"""Output of tasks, fetched from the cluster where they ran, or from the machine of a separate runner."""

import threading
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from hanse.api.row_records import TaskRow
from hanse.client.client import LeagueClient
from hanse.client.endpoints import Endpoints, refusal_error
from hanse.client.errors import warn
from hanse.client.transport import ANSWER_SECONDS_MAX, HttpReply, NoAnswerError

LINE_BYTES_MAX: Final = 64 << 10
"""Longest line that is passed on as a whole."""
RUNNER_HEADER: Final = "x-hanse-runner"
"""Header of a redirection (307): the runner that has the output on its machine."""


class LogRequest(NamedTuple):
    """Request for one stream of one attempt."""

    stream: str
    attempt: int | None = None
    follow: bool = False


class OutputSink:
    """Target of output: line by line with a prefix, or as it comes if there is no prefix."""

    _lock: Final = threading.Lock()

    def __init__(self, target: BinaryIO, prefix: str) -> None:
        self._target = target
        self._prefix = prefix.encode()
        self._partial_line = b""
        self.received = 0
        """Bytes received so far: the offset after an interruption."""
        self.last_warning = ""
        """Last warning, which is not repeated at every attempt."""

    def write(self, piece: bytes) -> None:
        """Write output. With a prefix, an unfinished line waits for its end."""
        self.received += len(piece)
        if not self._prefix:
            self._write_out(piece)
            return
        *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
        if len(self._partial_line) > LINE_BYTES_MAX:
            lines.append(self._partial_line)
            self._partial_line = b""
        if lines:
            self._write_out(b"".join(self._prefix + line + b"\n" for line in lines))

    def close(self) -> None:
        """Write a last line that has no end."""
        if self._partial_line:
            self._write_out(self._prefix + self._partial_line + b"\n")
            self._partial_line = b""

    def _write_out(self, data: bytes) -> None:
        with OutputSink._lock:
            self._target.write(data)
            self._target.flush()


def copy_output(endpoints: Endpoints, task: str, row: TaskRow, request: LogRequest, sink: OutputSink) -> bool:
    """Copy one stream of a task, from the offset of ``sink``; True if all of it was there."""
    latest = request.attempt in (None, row.attempt)
    clusters = [row.cluster] if row.cluster and latest else list(endpoints.context.clusters)
    query = {
        "attempt": str(request.attempt or row.attempt),
        "stream": request.stream,
        "offset": str(sink.received),
        "follow": "1" if request.follow else "0",
    }
    seconds = None if request.follow else ANSWER_SECONDS_MAX
    silent: list[str] = []
    for cluster in clusters:
        try:
            for node in _node_queries(endpoints, cluster, row.node if latest else None):
                target = f"/v1/logs/{quote(task)}?{urlencode({**query, **node})}"
                reply, pieces = _open_output(endpoints, cluster, target, seconds)
                if reply.status == 404:
                    continue
                if reply.status != 200:
                    raise refusal_error(reply)
                for piece in pieces:
                    sink.write(piece)
                sink.close()
                return True
        except _RunnerNoAnswerError as error:
            silent.append(str(error))
        except NoAnswerError as error:
            silent.append(f"the cluster {cluster} does not answer ({error})")
    warning = "; ".join(silent)
    if warning and warning != sink.last_warning:
        warn(f"{task}: its output cannot be shown now: {warning}")
        sink.last_warning = warning
    return False


class _RunnerNoAnswerError(NoAnswerError):
    """Failure of a runner on another machine, not of the cluster's warden, to answer."""


def _node_queries(endpoints: Endpoints, cluster: str, node: int | None) -> Iterator[dict[str, str]]:
    """Yield the nodes to name when asking a cluster: the task's own, or one of each machine if unknown."""
    if node is not None:
        yield {"node": str(node)}
        return
    yield {}
    node_by_runner: dict[str, int] = {}
    for one in LeagueClient(endpoints).cluster(cluster).nodes:
        node_by_runner.setdefault(one.runner, one.node)
    if len(node_by_runner) > 1:
        yield from ({"node": str(number)} for number in node_by_runner.values())


def _open_output(
    endpoints: Endpoints, cluster: str, target: str, seconds: float | None
) -> tuple[HttpReply, Iterator[bytes]]:
    """Open an output at a cluster's endpoint, or at that of the runner to which it redirects."""
    reply, pieces = endpoints.cluster(cluster).stream(target, seconds)
    runner = reply.headers.get(RUNNER_HEADER, "")
    if reply.status != 307 or not runner:
        return reply, pieces
    location = urlsplit(reply.headers.get("location", ""))
    try:
        return endpoints.runner(runner, location.netloc).stream(target, seconds)
    except NoAnswerError as error:
        sentence = f"the runner {runner} of the cluster {cluster} does not answer ({error})"
        raise _RunnerNoAnswerError(sentence, error.sent) from None
