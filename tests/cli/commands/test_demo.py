"""``hanse demo``: its story happens, its promises are checked, and it is the same for the same seed."""

from pathlib import Path

import msgspec
import pytest

from hanse.cli.commands.demo import decision_sentence, is_success
from hanse.cli.demo_league import DemoLeague
from hanse.cli.demo_report import DemoDecision, DemoJob, DemoReport
from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from hanse.model.decision_record import DecisionKind
from hanse.model.effects import TaskSettled
from hanse.model.ids import TaskId
from hanse.model.messages import Outcome


@pytest.fixture(scope="module")
def report() -> DemoReport:
    return DemoLeague(0).run()


def job(report: DemoReport, name: str) -> DemoJob:
    return next(it for it in report.jobs if it.name == name)


@pytest.mark.parametrize("seed", range(6))
def test_promises_are_kept_and_work_is_done(seed: int) -> None:
    report = DemoLeague(seed).run()
    assert report.violation == ""
    assert is_success(report)
    assert report.promises


def test_the_story_happens(report: DemoReport) -> None:
    told = " ".join(it.text for it in report.happenings)
    assert "east crashes" in told
    assert "west takes over the unfinished jobs of east" in told
    assert "to make room for more urgent work" in told
    assert "east starts, epoch 2" in told
    assert [it.at for it in report.happenings] == sorted(it.at for it in report.happenings)


def test_jobs_ran_where_their_rules_allow(report: DemoReport) -> None:
    assert list(job(report, "arm-tests").places) == ["bremen"]
    assert job(report, "train").places == {"hamburg": 4}
    assert job(report, "simulate").attempts > job(report, "simulate").tasks
    assert job(report, "simulate").ended_at == "west" != job(report, "simulate").submitted_to


def test_what_can_never_fit_is_refused_with_a_reason(report: DemoReport) -> None:
    huge = job(report, "huge")
    assert huge.outcome.startswith("refused: groups[0].count")
    assert huge.attempts == 0
    assert huge.job == ""


def test_the_dag_runs_in_order(report: DemoReport) -> None:
    build, publish = job(report, "build"), job(report, "publish")
    assert build.finished is not None
    assert publish.first_start is not None
    assert publish.submitted + publish.first_start >= build.submitted + build.finished - 1


def test_same_seed_same_report(report: DemoReport) -> None:
    assert DemoLeague(0).run() == report
    assert DemoLeague(1).run().digest != report.digest


def test_a_broken_promise_is_told() -> None:
    league = DemoLeague(0)
    league.world.call_at(
        8_000_000, lambda _: league.oracle.on_task_settled(TaskSettled(TaskId(1), 1, Outcome.SUCCEEDED))
    )
    report = league.run()
    assert "at most one effective completion" in report.violation
    assert report.promises == ()
    assert not is_success(report)


@pytest.mark.parametrize("answered", list(DecisionKind))
def test_every_answer_has_a_sentence(answered: DecisionKind) -> None:
    decision = DemoDecision(
        1.0, "east", "build", "fetch", answered, 2, "because", (("luebeck", 2, ""), ("bremen", 0, ""))
    )
    told = decision_sentence(decision)
    assert told.startswith("east ")
    assert "2 tasks of group fetch" in told
    assert told.endswith("because (2 in luebeck; none in bremen).")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], report: DemoReport) -> None:
    file = tmp_path / "report.json"
    assert run(["demo", "--why", "report", "--json", str(file)]) == ExitCode.OK
    said = capsys.readouterr().out
    assert "Why report ran where it ran" in said
    assert "kept  no node is ever over-committed" in said
    assert msgspec.json.decode(file.read_bytes(), type=DemoReport) == report
