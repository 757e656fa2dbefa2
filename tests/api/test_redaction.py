"""Secrets in a job's environment are for its tasks, not for whoever may look at the job."""

import pytest

from hanse.api.redaction import HIDDEN, redact
from hanse.api.row_records import JobDetail, JobRow
from hanse.client.retry_form import retry_form
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.program import Program, decode_program, encode_program
from hanse.security.identity import Role

HIDING = ("HANSE_HAND_SECRET", "my_secret_word", "HANSE_TOKEN", "db_password")
PLAIN = {"PATH": "/bin", "TOKENIZERS_PARALLELISM": "1"}
ENV = (*((name, "abc") for name in HIDING), *PLAIN.items())
COMMAND = Program(("true",), ENV)
ROW = JobRow(
    id="1-7", name="job", tenant="default", state="running", total=2, waiting=0, running=2, succeeded=0,
    failed=0, cancelled=0, submitted=1, started=2, ended=None, priority=0, klass="batch", clusters=(),
    cancel_reason="", owner="b1", client_id="", cursor="",
)  # fmt: skip
SPEC = JobSpec((TaskGroup(payload=encode_program(COMMAND)), TaskGroup(name="other", payload=b"\0opaque")))


def detail() -> JobDetail:
    return JobDetail(row=ROW, spec=SPEC, groups=())


def env_as_seen_by(role: Role) -> dict[str, str]:
    seen = redact(role, detail())
    assert seen.spec.groups[1].payload == SPEC.groups[1].payload
    command = decode_program(seen.spec.groups[0].payload)
    assert command is not None
    return dict(command.env)


@pytest.mark.parametrize("role", [role for role in Role if not role.is_member and role is not Role.ADMIN])
def test_secrets_are_not_shown(role: Role) -> None:
    assert env_as_seen_by(role) == {**dict.fromkeys(HIDING, HIDDEN), **PLAIN}


def test_an_admin_sees_all() -> None:
    assert env_as_seen_by(Role.ADMIN) == dict(ENV)


@pytest.mark.parametrize("role", [Role.ADMIN, Role.SUBMITTER, Role.VIEWER])
def test_nobody_is_shown_the_secret_of_a_job(role: Role) -> None:
    secret = bytes(range(32))
    spec = JobSpec((TaskGroup(payload=encode_program(Program(("true",), secret=secret))),))
    seen = redact(role, JobDetail(row=ROW, spec=spec, groups=()))
    assert secret not in seen.spec.groups[0].payload
    said = retry_form(seen.spec, [0])
    assert isinstance(said, str)
    assert "keys" in said


def test_what_is_not_shown_cannot_be_submitted_again_by_accident() -> None:
    seen = redact(Role.SUBMITTER, detail())
    said = retry_form(seen.spec, [0])
    assert isinstance(said, str)
    assert "secrets" in said
    assert not isinstance(retry_form(SPEC, [0]), str)


def test_the_record_that_was_asked_for_is_unchanged() -> None:
    whole = detail()
    redact(Role.VIEWER, whole)
    assert decode_program(whole.spec.groups[0].payload) == COMMAND
