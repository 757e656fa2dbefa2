"""Submissions: no job is taken twice, and none is lost without a word."""

from typing import Any

import pytest

from hanse.client import job_submission
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from tests.client.canned import HANG_UP, Answer, Asked, CannedLeague, row
from tests.client.canned_answers import client_of

FORMS: list[dict[str, object]] = [{"command": "true", "client_id": "mine"}]


def accepts(job: str) -> Any:
    return lambda asked: Answer(200, {"results": [{"job": job} for _ in asked.body["jobs"]]})


def test_a_broker_that_is_not_there_is_not_waited_for(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    second = canned.broker("broker-2", accepts("2-1"))
    client = client_of(canned)
    assert [result.job for result in client.submit(FORMS)] == ["2-1"]
    assert second.asked[0].body == {"jobs": FORMS}
    client.endpoints.close()


STOPPED = Answer(500, {"error": {"code": "stopped", "message": "this member stopped", "hint": ""}})


@pytest.mark.parametrize("end", [HANG_UP, STOPPED])
def test_a_job_whose_answer_was_lost_is_looked_for_before_it_is_submitted_again(
    canned: CannedLeague, end: Answer
) -> None:
    canned.broker("broker-1", lambda _: end)

    def second(asked: Asked) -> Answer:
        assert asked.method == "GET", "it was submitted a second time"
        return Answer(200, {"jobs": [row("1-5", "queued", client_id="mine")], "next": None})

    canned.broker("broker-2", second)
    client = client_of(canned)
    assert [result.job for result in client.submit(FORMS)] == ["1-5"]
    client.endpoints.close()


def test_a_job_that_nobody_got_is_submitted_to_the_next(canned: CannedLeague) -> None:
    canned.broker("broker-1", lambda _: HANG_UP)
    empty = Answer(200, {"jobs": [], "next": None})
    canned.broker("broker-2", lambda asked: empty if asked.method == "GET" else accepts("2-1")(asked))
    client = client_of(canned)
    assert [result.job for result in client.submit(FORMS)] == ["2-1"]
    client.endpoints.close()


def test_when_nobody_says_the_client_is_not_sure(canned: CannedLeague) -> None:
    canned.broker("broker-1", lambda _: HANG_UP)
    client = client_of(canned)
    with pytest.raises(CommandError) as told:
        client.submit(FORMS)
    assert told.value.status is ExitCode.UNSURE
    assert "mine" in told.value.hint
    client.endpoints.close()


def test_what_a_broker_is_not_sure_of_is_asked_again_there_and_nowhere_else(canned: CannedLeague) -> None:
    unsure = {"refused": "not yet safe", "unsure": True}
    answers: list[Any] = [[unsure, {"job": "1-2"}], [{"job": "1-1"}]]
    first = canned.broker("broker-1", lambda _: Answer(200, {"results": answers.pop(0)}))
    second = canned.broker("broker-2", accepts("2-1"))
    client = client_of(canned)
    forms: list[dict[str, object]] = [{"client_id": "a"}, {"client_id": "b"}]
    assert [result.job for result in client.submit(forms)] == ["1-1", "1-2"]
    assert [len(asked.body["jobs"]) for asked in first.asked] == [2, 1]
    first.reply = lambda _: Answer(200, {"results": [unsure]})
    assert client.submit(FORMS)[0].unsure
    assert len(first.asked) == 2 + 1 + job_submission.RESUBMITS_MAX
    assert second.asked == []
    client.endpoints.close()


def test_many_jobs_go_in_several_requests(canned: CannedLeague, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_submission, "JOBS_PER_REQUEST", 4)

    def reply(asked: Asked) -> Answer:
        return Answer(200, {"results": [{"job": f"1-{job['client_id']}"} for job in asked.body["jobs"]]})

    door = canned.broker("broker-1", reply)
    client = client_of(canned)
    forms: list[dict[str, object]] = [{"client_id": str(number)} for number in range(1, 11)]
    assert [result.job for result in client.submit(forms)] == [f"1-{number}" for number in range(1, 11)]
    assert [len(asked.body["jobs"]) for asked in door.asked] == [4, 4, 2]
    client.endpoints.close()
