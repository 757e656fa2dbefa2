"""Lists of jobs: pages, merges, and whose word counts."""

import pytest

from hanse.client import job_listing
from hanse.client.job_listing import JobFilter
from tests.client.canned import CannedLeague, row
from tests.client.canned_answers import client_of, listing


def test_lists_are_merged_and_the_owner_knows_best(canned: CannedLeague) -> None:
    copy = row("1-1", "queued", owner="broker-1", submitted=10)
    canned.broker("broker-2", listing(row("2-1", "running", "broker-2", submitted=30), copy))
    canned.broker("broker-1", listing(row("1-1", "running", "broker-1", submitted=10)))
    client = client_of(canned)
    found = client.jobs(JobFilter(), 50)
    assert [(one.id, one.state) for one in found.rows] == [("2-1", "running"), ("1-1", "running")]
    assert (found.more, found.silent) == (False, {})
    assert client.jobs(JobFilter(("queued",)), 50).rows == []  # the copy does not know better
    client.endpoints.close()


def test_copies_count_when_the_owner_is_silent(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    canned.broker("broker-2", listing(row("1-1", "queued", owner="broker-1")))
    client = client_of(canned)
    found = client.jobs(JobFilter(("queued",)), 50)
    assert [one.id for one in found.rows] == ["1-1"]
    assert list(found.silent) == ["broker-1"]
    client.endpoints.close()


def test_limits_and_pages(canned: CannedLeague, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_listing, "PAGE_ROWS", 3)
    rows = [row(f"1-{number}", submitted=number) for number in range(10, 0, -1)]
    door = canned.broker("broker-1", listing(*rows))
    client = client_of(canned)
    some = client.jobs(JobFilter(), 4)
    assert [one.id for one in some.rows] == ["1-10", "1-9", "1-8", "1-7"]
    assert some.more
    assert [asked.query["limit"] for asked in door.asked] == ["3", "1"]
    everything = client.jobs(JobFilter(), None)
    assert len(everything.rows) == 10
    assert not everything.more
    client.endpoints.close()


def test_equal_times_are_told_apart_by_number(canned: CannedLeague) -> None:
    unknown = row("1-3", submitted=None)
    canned.broker("broker-1", listing(unknown, row("1-2", submitted=5), row("1-11", submitted=5)))
    client = client_of(canned)
    assert [one.id for one in client.jobs(JobFilter(), 50).rows] == ["1-11", "1-2", "1-3"]
    client.endpoints.close()
