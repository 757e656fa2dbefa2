"""Jobs as people hand them in: options, files with their line numbers, and a job once more."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.cli.main import run
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.job_form import check_drafts, form_from_options, read_drafts, with_client_id
from hanse.client.retry_form import retry_form
from hanse.model.job import (
    GROUPS_MAX,
    JobClass,
    JobSpec,
    OnLoss,
    UnreachablePolicy,
)
from hanse.model.job_parser import parse_job_form
from hanse.model.program import Program, decode_program
from hanse.model.resources import Resources


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return str(path)


def complaint(path: str) -> str:
    with pytest.raises(CommandError) as told:
        check_drafts(read_drafts(path))
    assert told.value.status is ExitCode.BAD_JOB
    return told.value.message.replace(path, "FILE")


# --- files -------------------------------------------------------------------------------------------------


def test_a_file_becomes_a_job(tmp_path: Path) -> None:
    path = written(tmp_path, "name: build\ncount: 3\ncommand: make\n---\nname: second\ncommand: [ls]\n---\n")
    first, second = check_drafts(read_drafts(path))
    assert (first.name, first.task_count, second.name) == ("build", 3, "second")


def test_json_is_read_too(tmp_path: Path) -> None:
    (spec,) = check_drafts(read_drafts(written(tmp_path, '{"name": "j", "command": ["ls"]}')))
    assert spec.name == "j"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\nprioritty: 3\n", "FILE:2: prioritty: there is no field 'prioritty' here (did you mean"),
        ("groups:\n  - cpus: 1\n  - cpus: foo\n", "FILE:3: groups[1].cpus: CPUs are a number"),
        ("groups:\n  - name: a\n\n    command: [ls, 1.5]\n", "FILE:4: groups[0].command[1]:"),
        ("clusters:\n  allow:\n    - 7\n", "FILE:3: clusters.allow[0]:"),
        ("command: ls\naffinity:\n  - scope: node\n", "FILE:3: affinity[0].label:"),
        ("env: {A: b}\n", "FILE:1: env: 'env' is for a command, and there is none"),
        ("command: ls\ncount: 1\ncount: 2\n", "FILE:3: count is set twice (first in line 2)"),
        ("command: ls\n  bad: indent\n", "FILE:2: this is not YAML:"),
        ("a: *nobody\n", "FILE:1: this is not YAML:"),
        ("command: !!python/object:os.system ls\n", "FILE:1: this is not YAML: could not determine a"),
        ("- 1\n- 2\n", "FILE:1: this is a mapping with fields such as name, not a list"),
        ("", "FILE holds no job"),
        ("---\n---\n", "FILE holds no job"),
        ("apiVersion: hanse/v2\nkind: Job\n", "FILE:1: apiVersion: this must be hanse/v1"),
        ("apiVersion: hanse/v1\nkind: Job\nspec: {cpus: x}\n", "FILE:3: cpus: CPUs are a number"),
        ("apiVersion: hanse/v1\nkind: Job\nmetadata: {nam: x}\nspec: {}\n", "FILE:3: metadata.nam: a"),
        ("apiVersion: hanse/v1\nkind: Job\nspec: 3\n", "FILE:3: spec: a wrapped job"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, told: str) -> None:
    assert told in complaint(written(tmp_path, text))


def test_all_mistakes_of_all_jobs_at_once(tmp_path: Path) -> None:
    said = complaint(written(tmp_path, "cpus: x\n---\npriority: 5000\nretries: -1\n"))
    assert [line.split(" ")[0] for line in said.split("\n  ")[1:]] == ["FILE:1:", "FILE:3:", "FILE:4:"]


def test_the_wrapped_form(tmp_path: Path) -> None:
    path = written(tmp_path, "apiVersion: hanse/v1\nkind: Job\nmetadata: {name: w}\nspec:\n  command: ls\n")
    (spec,) = check_drafts(read_drafts(path))
    assert spec.name == "w"


def test_a_bomb_of_aliases_is_refused_quickly(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for above, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{above}'] * 10)}]")
    assert "values altogether" in complaint(written(tmp_path, "\n".join(lines)))


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=200, deadline=None)  # the first example imports the YAML reader
def test_no_file_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("form") / "job"
    path.write_bytes(data)
    found: ExitCode | list[JobSpec]
    try:
        found = check_drafts(read_drafts(str(path)))
    except CommandError as error:
        found = error.status
    assert found == ExitCode.BAD_JOB or isinstance(found, list)


# --- options -----------------------------------------------------------------------------------------------


def test_options_describe_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "on")
    given_options: dict[str, Any] = {
        "name": "n", "count": 4, "cpus": "2..4", "memory": "1GiB", "gpus": "1", "where": 'zone == "a"',
        "priority": 7, "deadline": "2h", "after": ("1-7",), "gang": True, "preemptible": False, "retries": 2,
        "tenant": "t", "allow": ("north",), "deny": (), "prefer": ("north",), "labels": ("web",),
        "resources": ("fpga=2",), "env": ("A=b=c", "PASSED"), "workdir": "/srv", "class": "latency",
        "duration": None, "grace": "1s", "unreachable": "wait", "on_loss": "fail", "client_id": "mine",
    }  # fmt: skip
    spec = parse_job_form(form_from_options(given_options, ("ls", "-l", "--", "x y")))
    assert isinstance(spec, JobSpec), spec
    (group,) = spec.groups
    assert group.ask == Resources(2_000, 1 << 30, 1, (("fpga", 2),))
    assert group.ask_max == Resources(4_000, 1 << 30, 1, (("fpga", 2),))
    command = decode_program(group.payload)
    assert command == Program(("ls", "-l", "--", "x y"), (("A", "b=c"), ("PASSED", "on")), "/srv")
    assert (spec.gang, spec.priority, spec.deadline, spec.retries) == (True, 7, 7_200_000_000, 2)
    assert (spec.clusters_allowed, spec.clusters_forbidden, spec.data) == (("north",), (), ("north",))
    assert (spec.klass, spec.unreachable, spec.client_id) == (
        JobClass.LATENCY,
        UnreachablePolicy.WAIT,
        "mine",
    )
    assert spec.on_loss is OnLoss.FAIL


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cpus", "abc", "--", "ls"], "--cpus: CPUs are a number"),
        (["--mem", "4G", "--", "ls"], "--mem: 'G' could mean two things"),
        (["-n", "0", "--", "ls"], "-n: "),
        (["--where", "zone =", "--", "ls"], "--where: "),
        (["--resource", "cpu=1", "--", "ls"], "--resource: 'cpu' has a field of its own"),
        (["--resource", "fpga", "--", "ls"], "'fpga' is not NAME=VALUE"),
        (["--env", "NOT_SET_ANYWHERE", "--", "ls"], "not set here"),
        (["--after", "seven", "--", "ls"], "'seven' is not a job id"),
        (["--timeout", "soon", "--", "ls"], "a time is a number of seconds"),
        (["--label", "", "--", "ls"], "--label: "),
        (["--cluster", "a", "--not-cluster", "a", "--", "ls"], "--cluster"),
        (["--follow", "--json", "--", "ls"], "which is not JSON"),
        ([], "nothing to run"),
        (["--"], "nothing to run"),
        (["-", "--", "ls"], "a file or a command, not both"),
    ],
)
def test_mistakes_of_options_are_told_by_their_names(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", *words]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_a_command_in_the_place_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "echo", "hi"]) == ExitCode.FILE
    assert "hanse submit -- echo hi" in capsys.readouterr().err


def test_options_go_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "name: a\npriority: 1\ncommand: ls\n")
    assert run(["submit", path, "--priority", "9", "--dry-run", "--json"]) == ExitCode.OK
    (job,) = msgspec.json.decode(capsys.readouterr().out)["jobs"]
    assert job["client_id"].startswith("cli-")
    assert {**job, "client_id": ""} == {"name": "a", "priority": 9, "command": "ls", "client_id": ""}


@pytest.mark.parametrize(
    ("text", "tenant"), [("command: ls\n", "ours"), ("command: ls\ntenant: its\n", "its")]
)
def test_the_shells_tenant_is_only_a_default(
    tmp_path: Path,
    text: str,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HANSE_TENANT", "ours")
    assert run(["submit", written(tmp_path, text), "--dry-run", "--json"]) == ExitCode.OK
    assert msgspec.json.decode(capsys.readouterr().out)["jobs"][0]["tenant"] == tenant


def test_every_submission_has_a_client_id_of_its_own() -> None:
    one, two = with_client_id({}), with_client_id({})
    assert one["client_id"] != two["client_id"]
    assert with_client_id({"client_id": "mine"}) == {"client_id": "mine"}


# --- once more ---------------------------------------------------------------------------------------------


def array(count: int, **fields: Any) -> JobSpec:
    spec = parse_job_form({"name": "a", "count": count, "command": ["ls", "x"], **fields})
    assert isinstance(spec, JobSpec), spec
    return spec


def again(spec: JobSpec, failed: list[int]) -> JobSpec:
    form = retry_form(spec, failed)
    assert not isinstance(form, str), form
    found = parse_job_form(form)
    assert isinstance(found, JobSpec), found
    return found


def test_only_failed_tasks_are_tried_again_with_their_index() -> None:
    second = again(array(5, cpus=2), [1, 4])
    assert [(group.name, group.count, group.ask.cpu) for group in second.groups] == [
        ("main-1", 1, 2_000),
        ("main-4", 1, 2_000),
    ]
    first, last = (decode_program(group.payload) for group in second.groups)
    assert first is not None
    assert last is not None
    assert first.argv == ("/usr/bin/env", "HANSE_TASK=1", "ls", "x")
    assert last.argv == ("/usr/bin/env", "HANSE_TASK=4", "ls", "x")
    third = again(second, [1])  # the fourth of the first job failed once more
    (group,) = third.groups
    command = decode_program(group.payload)
    assert command is not None
    assert (group.name, command.argv) == ("main-4", last.argv)


@pytest.mark.parametrize(
    ("spec", "failed"),
    [(array(1), [0]), (array(3), [0, 1, 2]), (array(3, gang=True), [1])],
    ids=["one task", "all failed", "gang"],
)
def test_some_jobs_are_tried_again_as_a_whole(spec: JobSpec, failed: list[int]) -> None:
    assert again(spec, failed) == spec


def test_jobs_it_waited_for_are_not_waited_for_again() -> None:
    form = retry_form(array(1, after=["1-7", "1-8"]), [0], succeeded_jobs=("1-7",))
    assert not isinstance(form, str)
    assert form["after"] == ["1-8"]


def test_too_many_to_try_again_one_by_one() -> None:
    assert "at most" in str(retry_form(array(GROUPS_MAX + 5), list(range(GROUPS_MAX + 1))))
    assert len(again(array(GROUPS_MAX + 5), list(range(GROUPS_MAX))).groups) == GROUPS_MAX
