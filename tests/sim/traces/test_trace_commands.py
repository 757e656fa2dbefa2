"""``hanse trace`` as its users meet it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hanse.cli.commands.trace import trace
from hanse.registry import Entry
from hanse.sim.traces import FORMATS, TraceError, load_with_report, open_trace, usable_formats
from hanse.sim.traces.generate import FAMILY_NAMES
from hanse.sim.traces.reader import TraceFormat


def run(*words: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(trace, [str(word) for word in words], input=stdin)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tr"
    path.write_text("10 2 1.5 1 2\n20 1 4 4\nrubbish\n30 1 7 7\n", encoding="utf-8")
    return path


def test_describe_as_json_and_as_a_table(tiny: Path) -> None:
    result = run("describe", tiny, "--json")
    facts = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (facts["format"], facts["jobs"], facts["tasks"]) == ("tr", 3, 4)
    assert facts["mean_demand_slots"] == pytest.approx(14 / 20)
    assert facts["report"]["bad"] == 1
    assert facts["report"]["first"] == [{"line": 3, "reason": "fewer than four fields", "detail": "rubbish"}]
    assert "line 3: fewer than four fields" in result.stderr
    table = run("describe", tiny)
    assert "mean demand, slots" in table.stdout
    assert "tasks of a job" in table.stdout
    assert run("describe", tiny, "--strict").exit_code == 1


def test_describe_reads_standard_input(tiny: Path) -> None:
    result = run("describe", "-", "--json", stdin=tiny.read_bytes())
    assert json.loads(result.stdout)["tasks"] == 4


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.tr", "o.tr.gz", "o.parquet"])
def test_convert_keeps_jobs(tiny: Path, tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow (the extra for Parquet) is not installed")
    result = run("convert", tiny, tmp_path / name)
    assert result.exit_code == 0, result.output
    assert "3 jobs, 4 tasks written" in result.stderr
    assert "line 3" in result.stderr
    back, _ = load_with_report(tmp_path / name)
    assert back.duration.tolist() == [1_000_000, 2_000_000, 4_000_000, 7_000_000]
    assert back.arrival.tolist() == [0, 10_000_000, 20_000_000]


def test_convert_takes_rules_and_sorts(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("arrival_us,duration_us\n9,1\n5,2\n", encoding="utf-8")
    plain = run("convert", path, "-")
    assert plain.stdout.splitlines()[0].startswith("# hanse-trace 1")
    assert [line.split(",")[1] for line in plain.stdout.splitlines()[2:]] == ["9", "5"]
    assert "use --sort" in plain.stderr
    ordered = run("convert", path, "-", "--sort")
    assert [line.split(",")[1] for line in ordered.stdout.splitlines()[2:]] == ["5", "9"]
    swf = tmp_path / "j.swf"
    swf.write_text(
        "; UnixStartTime: 1000\n; MaxProcs: 9\n1 50 0 7 2 -1 -1 4 5 -1 1 1 1 1 1 1 -1 -1\n", encoding="utf-8"
    )
    out = run("convert", swf, "-", "--processors", "allocated", "--kill-at-estimate").stdout.splitlines()
    assert out[0] == "# hanse-trace 1 nodes=9 unix_start=1050"
    assert out[2].split(",")[3:5] == ["5000000", "2000"]


def test_sample_thins(tmp_path: Path) -> None:
    assert run("generate", "--jobs", "900", "--out", tmp_path / "g.csv").exit_code == 0
    assert open_trace(tmp_path / "g.csv").nodes_hint == 1_000
    assert run("sample", tmp_path / "g.csv", tmp_path / "s.csv", "--every", "9").exit_code == 0
    thin, _ = load_with_report(tmp_path / "s.csv")
    assert thin.job.tolist() == list(range(0, 900, 9))
    first = run("sample", tmp_path / "g.csv", "-", "--fraction", "0.2", "--seed", "3")
    assert first.stdout == run("sample", tmp_path / "g.csv", "-", "--fraction", "0.2", "--seed", "3").stdout
    assert 120 < first.stdout.count("\n") < 250
    window = run("sample", tmp_path / "g.csv", "-", "--from", "10", "--until", "20")
    assert all(0 <= int(line.split(",")[1]) < 10_000_000 for line in window.stdout.splitlines()[2:])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("sample", "T", "-"), 2, "say what to keep"),
        (("sample", "T", "-", "--from", "5", "--until", "5"), 2, "the window is empty"),
        (("describe", "absent.tr"), 74, "does not exist"),
        (("describe", "T", "--format", "zzz"), 74, "choose one of"),
        (("convert", "T", "out.doc"), 74, "end it in .csv"),
        (("convert", "T", "-", "--to", "parquet"), 74, "give a file's name"),
        (("generate", "--family", "google-like", "--mean-seconds", "3"), 2, "has its own"),
        (("generate", "--load", "0"), 2, "--load"),
        (("generate", "--jobs", "1"), 2, "--jobs"),
        (("convert", "T", "absent/out.csv"), 74, "make it first"),
        (("describe", "T", "--with", "."), 2, "--with is for journals"),
        (("describe", "."), 74, "a folder without a journal"),
    ],
)
def test_bad_usage_says_what_to_do(tiny: Path, words: tuple[str, ...], code: int, says: str) -> None:
    result = run(*(str(tiny) if word == "T" else word for word in words))
    assert result.exit_code == code
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_formats_families_and_commands_are_listed_and_described() -> None:
    listed = run("formats").stdout
    text = (Path(__file__).parents[3] / "docs" / "research" / "traces.md").read_text(encoding="utf-8")
    for name in [*FORMATS.shipped, "journal"]:
        assert f"\n{name} " in f"\n{listed}"
        assert f"| `{name}` |" in text
    for name in FAMILY_NAMES:
        assert f"| `{name}` |" in text
    for name in trace.commands:
        assert f"hanse trace {name}" in text


def test_it_runs_as_a_module_and_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m hanse.cli.commands.trace generate --jobs 20000 | head -n 1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        check=False,
    )
    assert result.stdout.decode().startswith("# hanse-trace 1")
    assert b"Traceback" not in result.stderr
    assert b"Exception" not in result.stderr


def test_formats_of_other_packages_are_tried_after_ours(tmp_path: Path) -> None:
    """One that takes everything takes what ours leave; one that cannot be loaded is named and passed over."""
    odd = tmp_path / "odd.txt"
    odd.write_text("nothing that anybody knows\n")
    greedy = TraceFormat("greedy", "everything", lambda _: True, lambda _: iter(()))
    remove = FORMATS.register("greedy", greedy)
    try:
        assert open_trace(odd).format == "greedy"
        swf = tmp_path / "log.swf"
        swf.write_text("; UnixStartTime: 0\n1 0 0 10 1 -1 -1 1 10 -1 1 1 1 1 1 -1 -1 -1\n")
        assert open_trace(swf).format == "swf"
    finally:
        remove()
    with pytest.raises(TraceError, match="not recognised"):
        open_trace(odd)
    with pytest.raises(TraceError, match="there is no trace format 'greedy'; choose one of: csv, parquet"):
        open_trace(odd, "greedy")


def test_a_format_that_cannot_be_loaded_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entry = Entry("bad", "a_module_that_is_not_there:FORM", "broken 1.0", False)
    monkeypatch.setitem(FORMATS._found_entries(), "bad", entry)
    assert tuple(form.name for form in usable_formats()) == FORMATS.shipped
    assert "the trace format 'bad' of the package broken 1.0 cannot be loaded" in caplog.text
