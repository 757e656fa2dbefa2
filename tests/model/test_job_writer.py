"""The writer of jobs: what it writes is parsed to the same job, whatever field is set."""

import string
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hanse.model import job_fields
from hanse.model.constraint_syntax import format_constraint
from hanse.model.field_descriptions import JobField
from hanse.model.ids import job_id, job_text
from hanse.model.job import (
    Affinity,
    JobClass,
    JobSpec,
    OnLoss,
    Proximity,
    SpeedUp,
    TaskGroup,
    UnreachablePolicy,
)
from hanse.model.job_parser import parse_job_form
from hanse.model.job_validation import check_job
from hanse.model.job_writer import write_job_form
from hanse.model.program import Program, encode_program
from hanse.model.resources import Resources
from tests.model.drawn import constraints

# --- records -----------------------------------------------------------------------------------------------

words = st.text("abc-_ ", min_size=1, max_size=6).filter(lambda text: text.strip() == text)
amounts = st.builds(Resources, st.integers(0, 4_000), st.integers(0, 1 << 40), st.integers(0, 4))
arguments = st.text("ab é\n'\"\\$", min_size=1, max_size=8)
commands = st.builds(
    Program,
    st.lists(arguments, min_size=1, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(("A", "B")), words).map(lambda env: tuple(sorted(env.items()))),
    st.sampled_from(("", "/srv")),
)
wishes = st.builds(Affinity, words, st.sampled_from(Proximity), st.booleans())
groups = st.builds(
    TaskGroup,
    name=st.sampled_from(("main", "fetch")),
    count=st.integers(1, 5),
    ask=amounts,
    ask_max=st.none(),
    where=st.none() | constraints,
    affinity=st.lists(wishes, max_size=2).map(tuple),
    duration=st.none() | st.integers(1, 10**12),
    payload=st.just(b"") | commands.map(encode_program),
)
specs = st.builds(
    JobSpec,
    groups=st.lists(groups, min_size=1, max_size=2, unique_by=lambda group: group.name).map(tuple),
    name=words,
    tenant=words,
    klass=st.sampled_from(JobClass),
    priority=st.integers(-1_000, 1_000),
    deadline=st.none() | st.integers(1, 10**12),
    retries=st.integers(0, 100),
    preemptible=st.booleans(),
    grace=st.integers(0, 10**9),
    unreachable=st.sampled_from(UnreachablePolicy),
    on_loss=st.sampled_from(OnLoss),
    clusters_allowed=st.lists(st.sampled_from(("a", "b")), unique=True).map(tuple),
    labels=st.lists(words, unique=True, max_size=3).map(tuple),
)


@given(specs)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # test machines are busy
def test_a_job_turned_into_its_form_is_the_same_job(spec: JobSpec) -> None:
    assume(not check_job(spec))
    # conditions are normalised at the door: a job that has been through it comes back unchanged
    once = parse_job_form(write_job_form(spec))
    assert isinstance(once, JobSpec), once
    again = parse_job_form(write_job_form(once))
    assert again == once
    plain = msgspec.structs.replace
    bare = tuple(plain(group, where=None) for group in spec.groups)
    assert plain(once, groups=tuple(plain(group, where=None) for group in once.groups)) == plain(
        spec, groups=bare
    )


def test_elastic_work_and_the_rest_come_back() -> None:
    spec = parse_job_form(
        {
            "name": "e", "after": ["1-7"], "clusters": {"prefer": ["n"], "deny": ["m"]}, "command": "a; b",
            "groups": [
                {"name": "a", "cpus": "0.5..16", "memory": "1GiB..4GiB", "gpus": "0..2",
                 "resources": {"fpga": "1..3", "tpu": "0..1"}, "speed_up": [[0.5, 0, 1], [4, 1, 1.8]]},
                {"name": "b", "needs": ["a"], "where": 'zone == "a" or not (gpu exists and cpus > 3)'},
            ],
        }
    )  # fmt: skip
    assert isinstance(spec, JobSpec), spec
    assert isinstance(spec.groups[0].speed_up, SpeedUp)
    assert parse_job_form(write_job_form(spec)) == spec


# --- forms -------------------------------------------------------------------------------------------------


def _span(low: st.SearchStrategy[int], unit: str = "") -> st.SearchStrategy[object]:
    pairs = st.tuples(low, low).map(sorted)
    return st.one_of(
        pairs.map(lambda pair: f"{pair[0]}{unit}..{pair[1]}{unit}"), low.map(lambda number: f"{number}{unit}")
    )


def _listed(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3, unique_by=str)


times = st.one_of(st.integers(1, 3_000), st.sampled_from(("90s", "1h", "250ms", "7us", 0.5)))
clusters = st.sampled_from(("oslo", "bern", "rome"))
traces = st.integers(1, (1 << 128) - 1).map(lambda number: f"00-{number:032x}-00f067aa0ba902b7-01")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "name": words,
    "tenant": words,
    "class": st.sampled_from(("batch", "latency")),
    "priority": st.integers(-1_000, 1_000),
    "deadline": times,
    "retries": st.integers(0, 100),
    "preemptible": st.booleans(),
    "grace": times | st.just(0),
    "gang": st.booleans(),
    "together": st.sampled_from(("cluster", "rack", "node")),
    "spread": words | st.just(""),
    "spread_max": st.integers(0, 9),
    "unreachable": st.sampled_from(("move", "wait")),
    "on_loss": st.sampled_from(("retry", "fail")),
    "clusters": st.fixed_dictionaries(
        {},
        optional={"allow": _listed(clusters), "deny": _listed(st.just("ulm")), "prefer": _listed(clusters)},
    ),
    "labels": _listed(words),
    "after": _listed(st.builds(job_id, st.integers(1, 9), st.integers(0, 9_999)).map(job_text)),
    "client_id": words | st.just(""),
    "trace": traces,
    "count": st.integers(1, 50),
    "cpus": _span(st.integers(1, 64_000), "m"),
    "memory": _span(st.integers(0, 1 << 40)),
    "gpus": _span(st.integers(0, 8)),
    "resources": st.dictionaries(st.sampled_from(("fpga", "tpu")), _span(st.integers(1, 9)), max_size=2),
    "where": constraints.map(format_constraint),
    "affinity": st.lists(
        st.fixed_dictionaries(
            {"label": words},
            optional={"scope": st.sampled_from(("node", "cluster")), "apart": st.booleans()},
        ),
        max_size=2,
    ),
    "duration": times,
    "input": st.integers(0, 1 << 40),
    "speed_up": st.just([[1, 0, 1], [2, 0, 1.75]]),
    "command": words | st.lists(arguments, min_size=1, max_size=3),
    "env": st.dictionaries(st.sampled_from(("A", "B", "TRACEPARENT")), arguments | st.integers(0, 9)),
    "workdir": st.sampled_from(("/srv", "/srv/é")),
    "secret": st.binary(min_size=32, max_size=32).map(bytes.hex),
}
"""Values of every field except those that name groups."""
program_values = {row.name: VALUES[row.name] for row in job_fields.PROGRAM_FIELDS}
group_values = {row.name: VALUES[row.name] for row in job_fields.TABLE.top_of_group if row.name != "needs"}
job_values = {row.name: VALUES[row.name] for row in job_fields.JOB_FIELDS if row.name != "groups"}


def _forms(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


@st.composite
def job_forms(draw: st.DrawFn) -> dict[str, Any]:
    form = draw(_forms(job_values | program_values))
    if not form.get("gang"):
        form = {name: value for name, value in form.items() if name not in ("together", "spread")}
    if form.get("together") == "node":
        form.pop("spread", None)
    if not form.get("spread"):
        form.pop("spread_max", None)
    if draw(st.booleans()):
        return form | draw(_forms(group_values))
    entries = draw(st.lists(_forms(group_values | program_values), min_size=1, max_size=3))
    for index, entry in enumerate(entries):
        entry["name"] = string.ascii_lowercase[index]
        if index and draw(st.booleans()):
            entry["needs"] = [entries[index - 1]["name"]]
    return form | {"groups": entries}


def test_the_drawn_forms_have_all_fields() -> None:
    rows = job_fields.TABLE.top
    assert set(VALUES) | {"groups", "needs"} == {row.name for row in rows}


@given(job_forms())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_a_form_is_written_back_as_the_same_job(form: dict[str, Any]) -> None:
    spec = parse_job_form(form)
    assume(isinstance(spec, JobSpec))
    assert isinstance(spec, JobSpec)
    assert parse_job_form(write_job_form(spec)) == spec


@pytest.mark.parametrize("row", job_fields.TABLE.top, ids=lambda row: row.name)
def test_every_field_alone_is_written_back(row: JobField) -> None:
    """A field that the parser or the writer leaves out shows here: its example makes another job."""
    base: dict[str, Any] = {"command": "true", "name": "x"}
    example = {"groups": [{"name": "a"}, {"name": "b", "needs": ["a"]}]} if row.name == "needs" else None
    written = example or {row.name: _example(row.name)}
    if row.name in ("together", "spread", "spread_max"):
        base["gang"] = True
    if row.name == "spread_max":
        base["spread"] = "zone"
    plain, spec = parse_job_form(base), parse_job_form({**base, **written})
    if row.name == "speed_up":
        spec = parse_job_form({**base, **written, "cpus": "1..4"})
    assert isinstance(spec, JobSpec), spec
    assert spec != plain
    assert parse_job_form(write_job_form(spec)) == spec


def _example(name: str) -> Any:
    """A value of a field that is not its default."""
    examples: dict[str, Any] = {
        "class": "latency", "preemptible": True, "gang": True, "unreachable": "wait", "on_loss": "fail",
        "together": "rack", "spread": "zone",
        "clusters": {"allow": ["a"], "deny": ["b"], "prefer": ["a"]}, "labels": ["web"], "after": ["1-7"],
        "groups": [{"name": "a"}, {"name": "b"}], "cpus": 2, "resources": {"fpga": 1}, "where": "ssd exists",
        "affinity": [{"label": "db", "scope": "cluster", "apart": True}], "env": {"A": "b"},
        "command": ["ls"], "workdir": "/srv", "secret": "ab" * 32, "speed_up": [[1, 0, 1], [2, 0, 1.5]],
        "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }  # fmt: skip
    return examples.get(name, "other" if name in ("name", "tenant", "client_id") else 7)
