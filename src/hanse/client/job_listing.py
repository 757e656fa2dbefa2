"""Jobs of a league: lists are requested from every broker and merged."""

from typing import Final, NamedTuple

from hanse.api.records import JobsAnswer
from hanse.api.row_records import JobRow
from hanse.client.endpoints import Endpoints, decode_reply
from hanse.client.transport import NoAnswerError, build_target

PAGE_ROWS: Final = 1_000
"""Rows per request; the most that a server returns."""


class JobFilter(NamedTuple):
    """Filter of jobs; empty: all."""

    states: tuple[str, ...] = ()
    tenant: str = ""
    name: str = ""


class JobListing(NamedTuple):
    """Jobs of all brokers, the newest first."""

    rows: list[JobRow]
    more: bool
    """True if other jobs match."""
    silent: dict[str, str]
    """Brokers that did not answer, and the reasons. Their jobs are shown if other brokers hold copies."""


def list_jobs(endpoints: Endpoints, wanted: JobFilter, limit: int | None) -> JobListing:
    """Return the newest jobs of all brokers; ``limit`` None: all jobs."""
    found: dict[str, tuple[bool, JobRow]] = {}
    silent: dict[str, str] = {}
    answered: list[str] = []
    more = False
    for name in endpoints.iterate_brokers():
        try:
            for state in wanted.states or ("",):
                rows, cut = list_jobs_at(endpoints, name, wanted, state, limit)
                more = more or cut
                for row in rows:
                    own = row.owner == name
                    if row.id not in found or (own and not found[row.id][0]):
                        found[row.id] = (own, row)
            answered.append(name)
        except NoAnswerError as error:
            silent[name] = str(error)
    silent = endpoints.find_unanswered(silent, answered)
    if endpoints.is_all_silent(silent):
        raise endpoints.unreachable_error(silent)
    # Of a peer's job a broker knows only what has ended: only the owner knows the state.
    rows = [row for own, row in found.values() if own or not wanted.states or row.owner in (*silent, "")]
    rows.sort(key=_newest_first_key)
    if limit is not None and len(rows) > limit:
        return JobListing(rows[:limit], True, silent)
    return JobListing(rows, more, silent)


def list_jobs_at(
    endpoints: Endpoints, broker: str, wanted: JobFilter, state: str, limit: int | None
) -> tuple[list[JobRow], bool]:
    """Return one broker's jobs in one state, and True if it has more of them."""
    rows: list[JobRow] = []
    after: str | None = ""
    while after is not None and (limit is None or len(rows) < limit):
        size = PAGE_ROWS if limit is None else min(PAGE_ROWS, limit - len(rows))
        query = {"state": state, "tenant": wanted.tenant, "name": wanted.name, "after": after}
        query["limit"] = str(size)
        answer = decode_reply(endpoints.ask_broker(broker, build_target("/v1/jobs", query)), JobsAnswer)
        rows += answer.jobs
        after = answer.next
    return rows, after is not None


def _newest_first_key(row: JobRow) -> tuple[float, list[int]]:
    """Return a sort key: newest first, without a submission time last, ties by descending number."""
    when = -row.submitted if row.submitted is not None else float("inf")
    return when, [-int(part) for part in row.id.split("-")]
