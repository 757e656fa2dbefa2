"""``hanse world`` and the slots over time of ``hanse trace describe``, as their users meet them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hanse.cli.commands.trace import trace
from hanse.cli.commands.world import world
from hanse.sim.worlds.presets import make_preset
from hanse.sim.worlds.round_trips import FILE_NAME, TRACES_VARIABLE
from hanse.sim.worlds.world_file import read_world, world_to_text


def run(*words: str | float | Path) -> Result:
    return CliRunner().invoke(world, [str(word) for word in words])


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tr"
    rows = "".join(f"{at * 10} 3 1 20 30 {40 + at % 7}\n" for at in range(2_000))
    path.write_text(f"{rows}rubbish\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without any file of latencies."""
    monkeypatch.setenv(TRACES_VARIABLE, str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


def test_generate_writes_a_world_of_the_preset_and_the_seed(tmp_path: Path) -> None:
    out = tmp_path / "eight.yaml"
    result = run("generate", "--preset", "eight-hard", "--seed", 4, "--out", out)
    assert result.exit_code == 0, result.output
    assert "1,310 nodes in 8 clusters written to" in result.stderr
    assert "round trips: distance" in result.stderr
    assert read_world(out) == make_preset("eight-hard", 4)
    shown = run("generate", "--preset", "eight-hard", "--seed", 4)
    assert shown.stdout == out.read_text(encoding="utf-8")


def test_generate_takes_the_latencies_that_it_finds_or_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [cluster.region for cluster in make_preset("eight", 0).clusters]
    table = "\n".join([f"origin,{','.join(codes)}", *(f"{code},{','.join(['7'] * 8)}" for code in codes)])
    folder = tmp_path / "traces"
    (folder / FILE_NAME).parent.mkdir(parents=True)
    (folder / FILE_NAME).write_text(table, encoding="utf-8")
    given = run("generate", "--latencies", folder / FILE_NAME).stdout
    assert "origin: gcp_latency_matrix.csv" in given
    monkeypatch.setenv(TRACES_VARIABLE, str(folder))
    assert run("generate").stdout == given
    out = tmp_path / "x.yaml"
    facts = json.loads(run("generate", "--out", out, "--json").stdout)
    assert facts["round_trips"] == "gcp_latency_matrix.csv"
    assert {link["round_trip_seconds"] for link in facts["links"]} == {0.007}


def test_describe_shows_clusters_classes_and_links(tmp_path: Path) -> None:
    path = tmp_path / "eight.yaml"
    run("generate", "--out", path)
    result = run("describe", path)
    assert result.exit_code == 0, result.output
    for part in ("oregon", "leaf-spine 1.5:1", "milan", "165 GB/s", "vector x", "round trip, and the most"):
        assert part in result.stdout
    facts = json.loads(run("describe", path, "--json").stdout)
    assert facts["nodes"] == 1_310
    assert [found["name"] for found in facts["node_classes"]] == [
        "haswell",
        "cascade-lake",
        "ice-lake",
        "milan",
    ]
    assert sum(found["nodes"] for found in facts["node_classes"]) == 1_310
    assert len(facts["links"]) == 56
    assert "work" not in facts


def test_describe_with_traces_shows_the_work(tmp_path: Path, tiny: Path) -> None:
    path = tmp_path / "eight.yaml"
    run("generate", "--out", path)
    arguments = ("describe", path, tiny, "--load", 0.3, "--seed", 2, "--stretch", "train")
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    work = json.loads(result.stdout)["work"]
    assert work["load"] == pytest.approx(0.3, rel=0.02)
    assert work["work"].startswith("world eight, train of tiny.tr, load 0.3, seed 2")
    assert sum(found["tasks"] for found in work["clusters"]) == work["tasks"]
    assert sum(found["jobs"] for found in work["work_kinds"]) == work["jobs"]
    assert "1 of 2,001 rows are bad" in result.stderr
    table = run(*arguments)
    assert "train of tiny.tr" in table.stdout
    assert "core-hours" in table.stdout


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("describe", "none.yaml"), 74, "none.yaml: the world file cannot be read"),
        (("describe", "bad.yaml"), 74, "work_kinds: this is required"),
        (("describe", "good.yaml", "none.tr"), 74, "none.tr does not exist"),
        (("describe", "good.yaml", "--load", "0"), 2, "--load"),
        (("generate", "--preset", "nine"), 2, "'eight', 'eight-hard'"),
        (("generate", "--json"), 2, "name a file with --out"),
        (("generate", "--latencies", "none.csv"), 74, "none.csv: the latencies cannot be read"),
        (("generate", "--out", "no/where.yaml"), 74, "no/where.yaml: No such file or directory"),
    ],
)
def test_mistakes_end_with_a_sentence(
    words: tuple[str, ...], status: int, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("world: bad\n", encoding="utf-8")
    (tmp_path / "good.yaml").write_text(world_to_text(make_preset("eight", 0)), encoding="utf-8")
    result = run(*words)
    assert result.exit_code == status
    assert sentence in result.stderr


def test_trace_describe_shows_slots_over_time(tiny: Path) -> None:
    found = CliRunner().invoke(trace, ["describe", str(tiny), "--json"])
    slots = json.loads(found.stdout)["slots_over_time"]
    assert len(slots["buckets"]) == 20
    assert slots["buckets"][10] == pytest.approx((20 + 30 + 43) / 10, rel=0.02)
    assert slots["max"] >= max(slots["buckets"])
    table = CliRunner().invoke(trace, ["describe", str(tiny)]).stdout
    assert "demand for slots over time" in table
