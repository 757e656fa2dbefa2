"""Which placed tasks wait in a queue that is their cluster's own, such as Slurm's, and why: in sentences.

The league knows that they are placed. Only their cluster knows the rest, so its door is asked, when somebody
asks, and what it says is told and kept nowhere.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit

from hanse.client.endpoints import decoded
from hanse.client.errors import CommandError
from hanse.client.responses import WaitAnswer, WaitsAnswer
from hanse.client.transport import Reply, SilentError
from hanse.model.ids import SECOND
from hanse.security.wall_time import wall_now

if TYPE_CHECKING:
    from hanse.api.rows import TaskRow
    from hanse.client.client import Client

ROWS_MAX: Final = 1_000
"""Placed tasks of a job that are asked about: those with the lowest indexes."""
MACHINES_MAX: Final = 8
"""Runners of a cluster that are asked."""
KINDS_MAX: Final = 5
"""Reasons that are told of one cluster, those of the most tasks first; the others are counted."""
NAMED_MAX: Final = 3
"""Tasks that a sentence names."""
DOOR_SECONDS_MAX: Final = 5.0
"""How long a cluster may take to answer."""
RUNNER_HEADER: Final = "x-hanse-runner"


def queue_sentences(client: "Client", job: str) -> tuple[str, ...]:
    """What the clusters of a job's placed tasks say of them; nothing if none of these waits there."""
    try:
        rows = [row for row in client.tasks(job, state="placed", limit=ROWS_MAX).tasks if _is_placed(row)]
    except CommandError:
        return ()  # the rest of what was asked is known all the same
    told: list[str] = []
    for cluster in dict.fromkeys(row.cluster for row in rows):
        placed = {(f"{job}.{row.index}", row.attempt) for row in rows if row.cluster == cluster}
        try:
            found = [wait for wait in _waits(client, cluster, job) if (wait.task, wait.attempt) in placed]
        except (SilentError, CommandError) as error:
            told.append(f"Whether they wait in a queue of {cluster} is not known: it does not say ({error}).")
            continue
        told += _sentences(cluster, found)
    return tuple(told)


def _is_placed(row: "TaskRow") -> bool:
    return row.state == "placed" and row.cluster != ""


def _waits(client: "Client", cluster: str, job: str) -> Iterator[WaitAnswer]:
    """What waits in a cluster, by the word of its own runner and of those on other machines."""
    if not client.doors.has_cluster(cluster):
        return
    first = _asked(client, cluster, job, {})
    yield from first.waits
    for node in first.elsewhere[:MACHINES_MAX]:
        yield from _asked(client, cluster, job, {"node": str(node)}).waits


def _asked(client: "Client", cluster: str, job: str, query: dict[str, str]) -> WaitsAnswer:
    target = f"/v1/waits/{quote(job)}?{urlencode({**query, 'limit': str(ROWS_MAX)})}"
    reply = client.doors.cluster(cluster).ask("GET", target, seconds=DOOR_SECONDS_MAX)
    runner = reply.headers.get(RUNNER_HEADER, "")
    if reply.status == 307 and runner:
        there = urlsplit(reply.headers.get("location", "")).netloc
        reply = client.doors.runner(runner, there).ask("GET", target, seconds=DOOR_SECONDS_MAX)
    return WaitsAnswer() if _is_older(reply) else decoded(reply, WaitsAnswer)


def _is_older(reply: Reply) -> bool:
    """Whether it is of a version that cannot be asked this."""
    return reply.status == 404


def _sentences(cluster: str, waits: list[WaitAnswer]) -> Iterator[str]:
    """One for each reason; the reasons of most tasks first, equal ones in the order of their first tasks."""
    kinds: dict[str, list[WaitAnswer]] = {}
    for wait in waits:
        kinds.setdefault(wait.reason, []).append(wait)
    ordered = sorted(kinds.values(), key=len, reverse=True)  # stable
    for some in ordered[:KINDS_MAX]:
        since = _time(min(wait.since for wait in some))
        reason = some[0].reason
        if len(some) == 1:
            node = f" on the node {some[0].place}" if some[0].place else ""
            yield (
                f"Task {some[0].task} is placed in {cluster}{node} and waits in a queue there since {since}: "
                f"{reason}."
            )
            continue
        names = ", ".join(wait.task for wait in some[:NAMED_MAX]) + (", ..." if len(some) > NAMED_MAX else "")
        yield (
            f"{len(some)} tasks ({names}) are placed in {cluster} and wait in a queue there, the first since "
            f"{since}: {reason}."
        )
    rest = sum(map(len, ordered[KINDS_MAX:]))
    if rest:
        yield f"{rest} more wait there for other reasons."


def _time(wall: int) -> str:
    """A time of day (UTC, as in all sentences), with the date where it is not today's."""
    moment, today = (datetime.fromtimestamp(at // SECOND, UTC) for at in (wall, wall_now()))
    return f"{moment:%H:%M:%S}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M:%S}"
