"""The language of golden scripts, the printer of records, and the finder of differences."""

import msgspec
import pytest

from hanse.model.decision_record import ConsideredCluster, DecisionKind, DecisionRecord
from hanse.model.effects import RecordDecision, TaskSettled
from hanse.model.events import MessageReceived, TasksChanged
from hanse.model.ids import job_id, task_id
from hanse.model.messages import AttemptEnd, CancelAttempts, Delta, Envelope, Outcome
from hanse.model.resources import Resources
from hanse.sim.event_text import (
    effect_text,
    event_text,
    name_as_words,
    record_text,
    resources_text,
    seconds_text,
)
from hanse.sim.scripts.golden_script import run_script
from hanse.sim.scripts.words import (
    ScriptError,
    parse_duration,
    parse_job_of,
    parse_job_spec,
    parse_resources,
    parse_value,
)
from hanse.sim.shipped_league import shipped_factories
from hanse.sim.state_diff import first_difference
from hanse.sim.task_story import has_mention

TASK = task_id(job_id(2, 17), 3)
HEAD = "cluster alpha 1x2cpu\nleague b1 network=immediate\n----\n\n"


def _last(script: str) -> str:
    """What came of the last block."""
    return run_script(HEAD + script + "\n----\n", shipped_factories()).split("----\n")[-1]


def test_a_script_is_its_own_expectation() -> None:
    script = HEAD + "# prose\nsubmit b1 cpu=1 run=1s\nrun until idle\n----\n"
    played = run_script(script, shipped_factories())
    assert "task settled task=1-0.0 attempt=1 outcome=succeeded" in played
    assert run_script(played, shipped_factories()) == played
    assert played.startswith("cluster alpha 1x2cpu\nleague b1 network=immediate\n----\nok\n\n# prose\n")


def test_mistakes_are_told() -> None:
    assert "ERROR task 1-0.0 is not running" in _last("finish 1-0.0")
    assert "ERROR there is no process 'b9'" in _last("crash b9")
    assert "ERROR no such command: 'dance'" in _last("dance")
    assert "ERROR" in run_script("submit b1\n----\n", shipped_factories())


def test_messages_wait_are_delivered_dropped_and_cut() -> None:
    manual = "network manual\nsubmit b1 cpu=1\n"
    assert "b1 -> alpha: claim" in _last(manual + "flight")
    assert "alpha <- from b1: claim" in _last(manual + "deliver b1->alpha claim")
    assert "dropped: b1 -> alpha claim" in _last(manual + "drop b1->alpha")
    assert "launch" not in _last(manual + "deliver b1->alpha demand")
    assert "cut off: b1 -> alpha claim" in _last("cut b1|alpha\nsubmit b1 cpu=1")


def test_crashes_and_restarts() -> None:
    told = _last(
        "submit b1 cpu=1\nadvance 1s\ncrash alpha\nrestart alpha\nburn alpha.r1\nrestart alpha.r1\nadvance 2s"
    )
    assert "alpha ## crashes" in told
    assert "alpha ## starts, epoch 2" in told
    assert "1-0.0#1 lost" in told


def test_words() -> None:
    assert parse_duration("200ms") == 200_000
    assert parse_duration("1.5s") == 1_500_000
    assert parse_resources("0.5cpu+4GiB+2gpu+1fpga") == Resources(500, 4 << 30, 2, (("fpga", 1),))
    assert [parse_value(text) for text in ("true", "7", "a")] == [True, 7, "a"]
    assert parse_job_of("2-17") == parse_job_of("2-17.3") == job_id(2, 17)
    for bad in ("5", "five"):
        with pytest.raises(ScriptError):
            parse_duration(bad)
    with pytest.raises(ScriptError):
        parse_job_of("x")
    spec = parse_job_spec(
        0, {"groups": "a:2,b:1<a", "cpu": "1..4", "where": "zone == 'a'", "apart": "web:cluster"}
    )
    assert [group.count for group in spec.groups] == [2, 1]
    assert spec.groups[1].needs == ("a",)
    assert spec.groups[0].ask_max == Resources(4_000)
    with pytest.raises(ScriptError):
        parse_job_spec(0, {"where": "zone ="})


def test_records_read_well() -> None:
    end = AttemptEnd(TASK, 2, Outcome.FAILED, 7)
    assert name_as_words("TasksChanged") == "tasks changed"
    assert seconds_text(1_500_000) == "1.500s"
    assert seconds_text(1) == "0.000001s"
    assert event_text(TasksChanged(5, (), (end,))) == "tasks changed ended=[2-17.3#2 failed code=7]"
    cancel = Envelope("b1", "c1", 0, 1, 0, CancelAttempts((TASK,), (2,)))
    assert event_text(MessageReceived(0, cancel)) == "from b1: cancel attempts tasks=[2-17.3] attempts=[2]"
    assert (
        record_text(TaskSettled(TASK, 2, Outcome.SUCCEEDED))
        == "task settled task=2-17.3 attempt=2 outcome=succeeded"
    )
    assert resources_text(Resources(1_500, 1 << 30, 1, (("fpga", 2),))) == "1500mcpu+1GiB+1gpu+2fpga"
    assert resources_text(Resources()) == "nothing"
    decision = DecisionRecord(
        0, "b1", job_id(2, 17), 0, DecisionKind.WAITING, 3, "no room", (ConsideredCluster("c1", 0, "full"),)
    )
    assert (
        effect_text(RecordDecision(decision))
        == "decides: job 2-17 group 0 waiting, 3 tasks: no room (c1: 0, full)"
    )


def test_mentions() -> None:
    job = job_id(2, 17)
    assert has_mention(CancelAttempts((TASK,), (1,)), TASK, job)
    assert not has_mention(CancelAttempts((TASK,), (1,)), TASK + 1, job)
    eight = job_id(2, 0)  # as many as there are bytes in 8 GiB
    room = Delta("c1", 1, 0, 1, (0,), ((1_000, eight, 0),))  # type: ignore[arg-type]
    assert not has_mention(room, TASK, eight)


def test_differences_are_found() -> None:
    encode = msgspec.msgpack.encode
    assert first_difference(encode({"a": [1, 2]}), encode({"a": [1, 3]})) == ".a[1] is 2 and 3"
    assert first_difference(encode({"a": 1}), encode({"b": 1})) == ". has keys ['a'] and ['b']"
    assert first_difference(encode([1]), encode([1, 2])) == ". is [1] and [1, 2]"
    assert first_difference(encode({"a": {"b": 1}}), encode({"a": {"b": 1}})) == ""
