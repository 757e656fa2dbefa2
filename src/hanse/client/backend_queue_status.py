"""Reasons, in sentences, why placed tasks wait in a queue of their cluster, such as Slurm's.

The league knows that they are placed. Only the cluster knows the rest, so its warden is asked on demand, and
the answer is stored nowhere.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit

from hanse.api.records import WaitAnswer, WaitsAnswer
from hanse.client.endpoints import decode_reply
from hanse.client.errors import CommandError
from hanse.client.transport import HttpReply, NoAnswerError
from hanse.model.ids import SECOND
from hanse.security.wall_time import wall_now

if TYPE_CHECKING:
    from hanse.api.row_records import TaskRow
    from hanse.client.client import LeagueClient

ROWS_MAX: Final = 1_000
"""Placed tasks of a job to ask about: those with the lowest indexes."""
RUNNERS_MAX: Final = 8
"""Runners of a cluster to ask."""
REASONS_MAX: Final = 5
"""Reasons shown of one cluster, those of the most tasks first; the others are counted."""
NAMED_TASKS_MAX: Final = 3
"""Tasks that a sentence names."""
CLUSTER_SECONDS_MAX: Final = 5.0
"""Seconds that a cluster may take to answer."""
RUNNER_HEADER: Final = "x-hanse-runner"


def describe_queue_waits(client: "LeagueClient", job: str) -> tuple[str, ...]:
    """Describe the waits of a job's placed tasks in the queues of their clusters; empty: none waits."""
    try:
        rows = [row for row in client.tasks(job, state="placed", limit=ROWS_MAX).tasks if _is_placed(row)]
    except CommandError:
        return ()  # the caller has the rest of the answer
    sentences: list[str] = []
    for cluster in dict.fromkeys(row.cluster for row in rows):
        placed = {(f"{job}.{row.index}", row.attempt) for row in rows if row.cluster == cluster}
        try:
            waits = [
                wait for wait in _fetch_waits(client, cluster, job) if (wait.task, wait.attempt) in placed
            ]
        except (NoAnswerError, CommandError) as error:
            sentences.append(f"It is unknown whether they wait in a queue of {cluster}: no answer ({error}).")
            continue
        sentences += _describe_waits(cluster, waits)
    return tuple(sentences)


def _is_placed(row: "TaskRow") -> bool:
    return row.state == "placed" and row.cluster != ""


def _fetch_waits(client: "LeagueClient", cluster: str, job: str) -> Iterator[WaitAnswer]:
    """Fetch the waits in a cluster, from its own runner and from those on other machines."""
    if not client.endpoints.has_cluster(cluster):
        return
    first = _ask_cluster(client, cluster, job, {})
    yield from first.waits
    for node in first.elsewhere[:RUNNERS_MAX]:
        yield from _ask_cluster(client, cluster, job, {"node": str(node)}).waits


def _ask_cluster(client: "LeagueClient", cluster: str, job: str, query: dict[str, str]) -> WaitsAnswer:
    target = f"/v1/waits/{quote(job)}?{urlencode({**query, 'limit': str(ROWS_MAX)})}"
    reply = client.endpoints.cluster(cluster).request("GET", target, seconds=CLUSTER_SECONDS_MAX)
    runner = reply.headers.get(RUNNER_HEADER, "")
    if reply.status == 307 and runner:
        address = urlsplit(reply.headers.get("location", "")).netloc
        reply = client.endpoints.runner(runner, address).request("GET", target, seconds=CLUSTER_SECONDS_MAX)
    return WaitsAnswer() if _is_older(reply) else decode_reply(reply, WaitsAnswer)


def _is_older(reply: HttpReply) -> bool:
    """Return True if the answer is of a version without this request."""
    return reply.status == 404


def _describe_waits(cluster: str, waits: list[WaitAnswer]) -> Iterator[str]:
    """Yield a sentence for each reason, those of the most tasks first, equal ones by their first tasks."""
    by_reason: dict[str, list[WaitAnswer]] = {}
    for wait in waits:
        by_reason.setdefault(wait.reason, []).append(wait)
    ordered = sorted(by_reason.values(), key=len, reverse=True)  # stable
    for group in ordered[:REASONS_MAX]:
        since = _time_text(min(wait.since for wait in group))
        reason = group[0].reason
        if len(group) == 1:
            node = f" on the node {group[0].place}" if group[0].place else ""
            yield (
                f"Task {group[0].task} is placed in {cluster}{node} and waits in a queue there since "
                f"{since}: "
                f"{reason}."
            )
            continue
        names = ", ".join(wait.task for wait in group[:NAMED_TASKS_MAX]) + (
            ", ..." if len(group) > NAMED_TASKS_MAX else ""
        )
        yield (
            f"{len(group)} tasks ({names}) are placed in {cluster} and wait in a queue there, the first "
            f"since {since}: {reason}."
        )
    rest = sum(map(len, ordered[REASONS_MAX:]))
    if rest:
        yield f"{rest} more wait there for other reasons."


def _time_text(wall: int) -> str:
    """Format a time of day (UTC, as in all sentences), with the date if it is not today."""
    moment, today = (datetime.fromtimestamp(at // SECOND, UTC) for at in (wall, wall_now()))
    return f"{moment:%H:%M:%S}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M:%S}"
