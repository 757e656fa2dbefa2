"""The job as an object of the SDK: what it says about a failure."""

from typing import cast

import pytest

from hanse.api.row_records import JobRow, TaskRow
from hanse.sdk.client_pool import ClientPool
from hanse.sdk.job import Job

ROW = JobRow(
    id="1-7", name="j", tenant="t", state="failed", total=1, waiting=0, running=0, succeeded=0, failed=1,
    cancelled=0, submitted=None, started=None, ended=None, priority=0, klass="batch", clusters=(),
    cancel_reason="", owner="b1", client_id="", cursor="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "code", "note", "said"),
    [
        ("failed", 3, "", "task 0: exit code 3"),
        ("failed", -9, "out of memory", "task 0: signal 9: out of memory"),
        ("lost", None, "its node is gone", "task 0: lost: its node is gone"),
        ("", None, "", "task 0: no exit code is known"),
    ],
)
def test_a_failure_names_the_end_that_is_known(
    outcome: str, code: int | None, note: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TaskRow(
        index=0, group="main", state="failed", attempt=1, cluster="c1", node=0, outcome=outcome, code=code,
        usage=None, note=note, failures=0, started=None, ended=None,
    )  # fmt: skip
    job = Job(cast("ClientPool", None), "1-7")
    monkeypatch.setattr(job, "tasks", lambda: iter((task,)))
    assert job._failure_text(ROW) == f"the job 1-7 failed; {said}"
