"""The door for jobs: what it lets in, what it refuses, and how it says so."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.constraints import AllOf, AnyOf, Compare, Is
from hanse.model.field_reader import ITEMS_MAX
from hanse.model.ids import SECOND, job_id
from hanse.model.job import (
    PAYLOAD_BYTES_MAX,
    SPEC_BYTES_MAX,
    Affinity,
    JobClass,
    JobSpec,
    OnLoss,
    Proximity,
    SpeedUp,
    TaskGroup,
    UnreachablePolicy,
)
from hanse.model.job_parser import (
    PROBLEMS_MAX,
    Problem,
    Program,
    check_job,
    decode_program,
    encode_program,
    parse_job_form,
)
from hanse.model.resources import CUSTOM_MAX, GPUS_MAX, Resources


def refused(data: object) -> tuple[Problem, ...]:
    result = parse_job_form(data)
    assert isinstance(result, tuple), f"{result} was let in"
    assert result
    return result


def accepted(data: object) -> JobSpec:
    result = parse_job_form(data)
    assert isinstance(result, JobSpec), result
    return result


def test_the_example_in_the_documentation_is_a_job() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "job-file.md").read_text(encoding="utf-8")
    examples = [
        yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ]
    spec = accepted(next(data for data in examples if data.get("name") == "nightly-build"))
    assert spec == JobSpec(
        name="nightly-build",
        tenant="physics",
        deadline=7_200 * SECOND,
        retries=3,
        preemptible=True,
        grace=30 * SECOND,
        clusters_allowed=("oslo", "bern"),
        clusters_forbidden=("rome",),
        data=("bern",),
        labels=("web",),
        after=(job_id(1, 7),),
        client_id="build-4711",
        groups=(
            TaskGroup(
                name="fetch",
                ask=Resources(1_000, 512_000_000),
                payload=encode_program(
                    Program(("/bin/sh", "-c", "make -j4"), (("MODE", "fast"),), "/srv/build")
                ),
            ),
            TaskGroup(
                name="compile",
                count=10,
                ask=Resources(2_000, 4 << 30, 1, (("fpga", 1),)),
                ask_max=Resources(16_000, 4 << 30, 1, (("fpga", 1),)),
                speed_up=SpeedUp(((2_000, 1, 1_000), (4_000, 1, 1_800))),
                where=AllOf((Is("arch", "arm64"), Compare("disk_gb", ">=", 100))),
                affinity=(Affinity("db", Proximity.NODE, apart=True),),
                needs=("fetch",),
                duration=600 * SECOND,
                payload=encode_program(Program(("make", "all"), (("MODE", "fast"),), "/srv/build")),
            ),
        ),
    )


def test_the_short_form() -> None:
    spec = accepted(
        {
            "name": "tiny",
            "class": "latency",
            "unreachable": "wait",
            "on_loss": "fail",
            "count": 3,
            "cpus": 0.1,
            "memory": "1GiB..4GiB",
            "gpus": "0..2",
            "resources": {"tpu": "0..4", "fpga": 2},
            "where": "b == 1 or a exists",
            "command": ["sleep", 10],
            "deadline": None,
        }
    )
    assert (spec.name, spec.klass, spec.unreachable) == ("tiny", JobClass.LATENCY, UnreachablePolicy.WAIT)
    assert spec.on_loss is OnLoss.FAIL
    assert accepted({"command": "ls"}).on_loss is OnLoss.RETRY
    (only,) = spec.groups
    assert (only.name, only.count) == ("main", 3)
    assert only.ask == Resources(100, 1 << 30, 0, (("fpga", 2),))
    assert only.ask_max == Resources(100, 4 << 30, 2, (("fpga", 2), ("tpu", 4)))
    assert decode_program(only.payload) == Program(("sleep", "10"))
    assert only.where == accepted({"where": "a exists or b in (1)"}).groups[0].where
    assert isinstance(only.where, AnyOf)
    assert accepted({}) == JobSpec(groups=(TaskGroup(),))


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        (None, "", "a mapping with fields"),
        ([], "", "not a list"),
        ("name: x", "", "a mapping with fields"),
        ({"cpu": 2}, "cpu", "did you mean 'cpus'?"),
        ({"klass": "batch"}, "klass", "did you mean 'class'?"),
        ({"zzzz": 1}, "zzzz", "known are name,"),
        ({7: 1}, "", "a field's name is a word, not 7"),
        ({"x\x1b": 1}, r"'x\x1b'", "there is no field"),
        ({"name": 5}, "name", "(put it in quotes)"),
        ({"name": "a\nb"}, "name", "printable"),
        ({"class": "fast"}, "class", "one of latency, batch, not 'fast'"),
        ({"class": ["batch"]}, "class", "one of latency, batch, not a list"),
        ({"gang": "yes"}, "gang", "true or false"),
        ({"gang": 1}, "gang", "true or false"),
        ({"priority": True}, "priority", "whole number, not true"),
        ({"priority": 1.5}, "priority", "whole number, not 1.5"),
        ({"priority": 10**5_000}, "priority", "bits"),
        ({"retries": "3"}, "retries", "whole number"),
        ({"count": 0}, "count", "from 1 to"),
        ({"count": float("nan")}, "count", "whole number, not nan"),
        ({"deadline": -1}, "deadline", "cannot be negative"),
        ({"deadline": "1y"}, "deadline", "units: us, ms"),
        ({"deadline": "20000w"}, "deadline", "at most ten years"),
        ({"grace": "2h"}, "grace", "at most 3600 seconds, not 7200"),
        ({"cpus": True}, "cpus", "not true"),
        ({"cpus": float("nan")}, "cpus", "out of all range"),
        ({"cpus": float("inf")}, "cpus", "out of all range"),
        ({"cpus": "1e400"}, "cpus", "not '1e400'"),
        ({"cpus": -1}, "cpus", "cannot be negative"),
        ({"cpus": "0.0001"}, "cpus", "finer than a thousandth"),
        ({"cpus": 1e-300}, "cpus", "finer than a thousandth"),
        ({"cpus": 10**5_000}, "cpus", "out of all range"),
        ({"cpus": "9" * 10_000}, "cpus", "CPUs are a number"),
        ({"cpus": "16..2"}, "cpus", "upside down"),
        ({"cpus": "2.."}, "cpus", "CPUs are a number"),
        ({"cpus": "1..2..3"}, "cpus", "CPUs are a number"),
        ({"cpus": 0}, "cpus", "nothing at all"),
        ({"cpus": {}}, "cpus", "not a mapping"),
        ({"memory": "4G"}, "memory", "write GB (1000s) or GiB (1024s)"),
        ({"memory": "4 parsecs"}, "memory", "not 'parsecs'"),
        ({"memory": 1.5}, "memory", "whole bytes"),
        ({"memory": "2PiB"}, "memory", "1 PiB"),
        ({"gpus": 1.5}, "gpus", "whole number, not 1.5"),
        ({"gpus": GPUS_MAX + 1}, "gpus", "from 0 to"),
        ({"resources": {"cpu": 1}}, "resources.cpu", "field of its own"),
        ({"resources": {"fpga": 0}}, "resources.fpga", "at least 1"),
        ({"resources": {"fpga": CUSTOM_MAX + 1}}, "resources.fpga", "from 1 to"),
        ({"resources": {1: 1}}, "resources", "a word, not 1"),
        ({"resources": [1]}, "resources", "mapping of names to amounts"),
        ({"resources": {str(i): 1 for i in range(17)}}, "resources", "at most 16"),
        ({"where": 3}, "where", "a condition is a text"),
        ({"where": "a = 1"}, "where", "write '=='"),
        ({"affinity": {"label": "x"}}, "affinity", "this is a list"),
        ({"affinity": [{"scope": "node"}]}, "affinity[0].label", "missing"),
        ({"affinity": [{"label": "x", "scop": "node"}]}, "affinity[0].scop", "did you mean 'scope'?"),
        ({"affinity": ["x"]}, "affinity[0]", "a mapping"),
        ({"affinity": [{"label": ""}]}, "affinity[0].label", "at least one"),
        ({"needs": ["x"]}, "needs", "write them under 'groups'"),
        ({"speed_up": [[1, 0, 1]]}, "speed_up", "needs a range"),
        ({"cpus": "1..4", "speed_up": [[1, 0]]}, "speed_up[0]", "a point is a list"),
        ({"cpus": "1..4", "speed_up": [[1, 0, 1.0001]]}, "speed_up[0]", "three decimals"),
        ({"cpus": "1..4", "speed_up": [[1, "x", 1]]}, "speed_up[0]", "whole number"),
        ({"cpus": "1..4", "speed_up": [[8, 0, 1]]}, "speed_up[0]", "outside"),
        ({"labels": "web"}, "labels", "this is a list"),
        ({"labels": ["web", 8080]}, "labels[1]", "put it in quotes"),
        ({"after": ["7"]}, "after[0]", 'such as "1-7"'),
        ({"after": [7]}, "after[0]", 'such as "1-7"'),
        ({"clusters": ["a"]}, "clusters", "a mapping"),
        ({"clusters": {"forbid": ["a"]}}, "clusters.forbid", "known are allow, deny, prefer"),
        ({"clusters": {"allow": ["a"], "deny": ["a"]}}, "clusters.allow[0]", "both allowed and forbidden"),
        ({"clusters": {"deny": [" "]}}, "clusters.deny[0]", "space"),
        ({"clusters": {"prefer": [""]}}, "clusters.prefer[0]", "at least one"),
        ({"command": []}, "command", "an empty list"),
        ({"command": "  "}, "command", "empty"),
        ({"command": {"run": 1}}, "command", "not a mapping"),
        ({"command": ["a", 1.5]}, "command[1]", "put it in quotes"),
        ({"command": ["a", True]}, "command[1]", "put it in quotes"),
        ({"command": ["a", "b\0"]}, "command[1]", "NUL"),
        ({"command": "a\ud800"}, "command", "Unicode"),
        ({"command": ["", "b"]}, "command[0]", "empty"),
        ({"command": "x" * (PAYLOAD_BYTES_MAX + 1)}, "command", "1048576 bytes"),
        ({"command": "x", "env": {"A=B": "c"}}, "env", "without '='"),
        ({"command": "x", "env": {"A": None}}, "env.A", "not nothing"),
        ({"command": "x", "env": ["A"]}, "env", "mapping of names"),
        ({"command": "x", "workdir": 5.5}, "workdir", "put it in quotes"),
        ({"command": "x", "secret": "ab"}, "secret", "64 hexadecimal digits"),
        ({"command": "x", "secret": "zz" * 32}, "secret", "64 hexadecimal digits"),
        ({"secret": "ab" * 32}, "secret", "is for a command"),
        ({"env": {"A": "b"}}, "env", "there is none"),
        ({"groups": {}}, "groups", "a list of groups"),
        ({"groups": []}, "groups", "1 to 1024 groups, not 0"),
        ({"groups": [{}] * 1_025}, "groups", "not 1025"),
        ({"groups": [3]}, "groups[0]", "a mapping"),
        ({"groups": [{}], "cpus": 2}, "cpus", "move it into one"),
        ({"groups": [{"name": "a"}, {"name": "b", "cpus": "x"}]}, "groups[1].cpus", "CPUs are"),
        ({"groups": [{"name": "a"}, {"name": "b", "cpus": 0}]}, "groups[1].cpus", "nothing at all"),
        ({"groups": [{"name": "a"}, {"name": "a"}]}, "groups[1].name", "already"),
        ({"groups": [{"tenant": "a"}]}, "groups[0].tenant", "there is no field"),
        ({"groups": [{"name": "a", "needs": ["b"]}, {"name": "b", "needs": ["a"]}]}, "groups", "a -> b -> a"),
        ({"groups": [{"name": f"g{i}"} for i in range(50)], "command": 5.5}, "command", "a text"),
        ({"labels": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}, "", "levels deep"),
    ],
)
def test_refusals_name_the_field_and_the_rule(data: object, field: str, words: str) -> None:
    problems = refused(data)
    assert len(problems) == 1, problems
    assert problems[0].field == field
    assert words in problems[0].rule


def test_several_slips_are_told_at_once() -> None:
    data = {"cpu": 1, "memory": "4G", "gang": "no", "groups": None, "command": []}
    assert [problem.field for problem in refused(data)] == ["cpu", "memory", "command", "gang"]
    assert refused({f"x{i}": 0 for i in range(100)})[-1] == Problem("", "and 80 more")


def test_oversized_data_is_refused_by_a_short_walk() -> None:
    itself: list[object] = []
    itself.append(itself)
    bomb: list[object] = []
    for _ in range(12):
        bomb = [bomb] * 10
    for data in (
        {"name": "x" * (10 << 20)},
        {"labels": ["x" * 1_000] * (SPEC_BYTES_MAX // 1_000 + 1)},
        {"labels": [0] * (ITEMS_MAX + 1)},
        {"env": {str(i): 0 for i in range(ITEMS_MAX)}},
        {"labels": itself},
        {"labels": bomb},
    ):
        (problem,) = refused(data)
        assert problem.field == ""
        assert "at most" in problem.rule


def test_a_job_too_large_only_once_encoded_is_refused() -> None:
    large = "x" * (900 << 10)
    groups = [{"name": f"g{i}", "needs": []} for i in range(5)]
    (problem,) = refused({"command": large, "groups": groups})
    assert "bytes altogether" in problem.rule


garbage = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.sampled_from(
        ("2..16", "1h", "4GiB", "a exists", "a", 1, 0, 10**4_000, -1, "1-7", "batch", "\ud800", "x\0")
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(("label", "allow", "name", "needs")), inner, max_size=4
        )
    ),
    max_leaves=8,
)
FIELDS = (
    *(
        "name",
        "tenant",
        "class",
        "priority",
        "deadline",
        "retries",
        "preemptible",
        "grace",
        "gang",
        "unreachable",
        "on_loss",
    ),
    *("clusters", "labels", "after", "client_id", "count", "cpus", "memory", "gpus", "resources", "where"),
    *("affinity", "needs", "duration", "speed_up", "command", "env", "workdir", "secret"),
)
flat = st.dictionaries(st.sampled_from(FIELDS), garbage, max_size=6)
grouped = st.builds(lambda top, groups: {**top, "groups": groups}, flat, st.lists(flat | garbage, max_size=3))


@given(garbage | flat | grouped)
def test_no_data_raises_and_what_is_let_in_is_sound(data: object) -> None:
    result = parse_job_form(data)
    if isinstance(result, JobSpec):
        assert check_job(result) == ()
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=JobSpec) == result
    else:
        assert 0 < len(result) <= PROBLEMS_MAX + 1
        for problem in result:
            assert problem.rule
            assert problem.field.isprintable()
            assert len(problem.rule) < 1_000


@given(st.sampled_from(FIELDS), garbage)
def test_a_single_wrong_field_is_the_one_named(field: str, value: object) -> None:
    result = parse_job_form({field: value})
    if isinstance(result, tuple) and result[0].rule.find("altogether") < 0:
        assert all(
            problem.field == field or problem.field.startswith((f"{field}.", f"{field}["))
            for problem in result
        )


@given(st.binary(max_size=40))
def test_other_payloads_are_no_command(payload: bytes) -> None:
    command = decode_program(payload)
    assert command is None or command.argv


class LongerProgram(Program, frozen=True, array_like=True):
    """A program with one more field."""

    umask: str = ""


def test_a_payload_has_every_field_that_is_set() -> None:
    """A list of fields by hand would lose a new one. Without such a field a payload stays as it was."""
    secret = b"s" * 32
    for program, fields in (
        (Program(("a",)), 3),
        (Program(("a",), secret=secret), 4),
        (LongerProgram(("a",), secret=secret), 4),
        (LongerProgram(("a",), umask="022"), 5),
    ):
        payload = encode_program(program)
        assert len(msgspec.msgpack.decode(payload)) == fields
        assert msgspec.msgpack.decode(payload, type=type(program)) == program


def test_commands_survive_their_payload() -> None:
    command = Program(("a", "ü b"), (("A", "1"),), "/x")
    assert decode_program(encode_program(command)) == command
    assert decode_program(encode_program(Program(()))) is None
    assert decode_program(b"") is None
    assert decode_program(b"\x91" * 100_000) is None
    assert decode_program(b"\x91\x91\xa1\xff") is None  # not UTF-8
    assert (
        decode_program(b"\x94\x91\xa1a\x90\xa0" + b"\x91" * 100_000 + b"\xc0") is None
    )  # a bottomless extra field
