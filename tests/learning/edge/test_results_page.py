"""The results page says what its trained files are, keeps what is not asked for, and judges its own bars."""

from pathlib import Path

import msgspec
import numpy as np
from click.testing import CliRunner

from hanse.learning.edge.cli import report_edge
from hanse.learning.edge.evaluation import network_evaluation, results_page
from hanse.learning.edge.evaluation.policy_evaluation import setting_by_name

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "results" / "edge.md"
TRAINED = ROOT / network_evaluation.TRAINED_FOLDER
CPU_SECONDS_MAX = 900.0


def place(rule: list[float], *, bound: bool = False, home: bool = False) -> network_evaluation.EvaluationCase:
    made = network_evaluation.make_case(
        "here", msgspec.structs.replace(setting_by_name("syn3"), tasks_per_cluster=1), 2
    )
    return msgspec.structs.replace(made, rule_means=np.array(rule), is_bounded=bound, is_trained_setting=home)


def test_a_bar_is_judged_by_its_own_figures() -> None:
    here = place([3.7, 3.6], home=True)
    good = network_evaluation.verdict_sentences(here, ["1", "2"], np.array([3.55, 3.58]))
    assert [line.count("held") for line in good] == [1, 1]
    assert not any("missed" in line for line in good)
    mixed = network_evaluation.verdict_sentences(here, ["1", "2"], np.array([3.50, 3.66]))
    assert "held" in mixed[0]
    assert "not so: seed 2" in mixed[0]
    assert "not so: seed 2" in mixed[1]
    bad = network_evaluation.verdict_sentences(here, ["1", "2"], np.array([3.60, 3.72]))
    assert all("missed" in line for line in bad)


def test_the_worst_seed_is_what_counts_where_nobody_was_trained() -> None:
    seeds = np.array([3.0, 3.05, 3.1])
    (held,) = network_evaluation.verdict_sentences(place([3.05, 3.05], bound=True), ["1", "2", "3"], seeds)
    (missed,) = network_evaluation.verdict_sentences(place([3.0, 3.0], bound=True), ["1", "2", "3"], seeds)
    assert "held" in held
    assert "seed 3 with +1.6 %" in held
    assert "missed" in missed
    assert network_evaluation.verdict_sentences(place([1.0, 1.0]), ["1", "2", "3"], seeds) == []


def test_sections_that_are_not_asked_for_stay_as_they_were() -> None:
    old = PAGE.read_text()
    marked = old.replace("## Speed\n\n", "## Speed\n\nmeasured elsewhere. ").replace(
        "axes are exchanged", "?"
    )
    new = results_page.page(20, TRAINED, lambda _: None, ["found"], marked)
    assert "measured elsewhere. " in new
    assert new.replace("measured elsewhere. ", "") == old


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    answer = CliRunner().invoke(report_edge, ["--section", "weather", "--out", str(tmp_path / "page.md")])
    assert answer.exit_code == 1
    assert "no section 'weather'" in answer.output
    assert not (tmp_path / "page.md").exists()


def test_the_page_has_every_section_and_every_trained_file() -> None:
    text = PAGE.read_text()
    report = results_page.EdgeReport(20, TRAINED, lambda _: None)
    assert tuple(report.sections()) == results_page.SECTIONS
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == [heading for heading, _ in report.sections().values()]
    seeds = [name for name, _, _ in network_evaluation.load_all(TRAINED, "seed-")]
    assert "| " + " | ".join(f"seed {name}" for name in seeds) + " | worst |" in text
    for name, _, _ in network_evaluation.load_all(TRAINED, "ablation-"):
        assert f"\n| {name} | " in text, name


def test_the_training_seeds_differ_in_nothing_but_their_seed() -> None:
    files = network_evaluation.load_all(TRAINED, "seed-")
    assert len(files) > 1
    assert [name for name, _, _ in files] == [str(about.recipe["seed"]) for _, _, about in files]
    recipes = [{**about.recipe, "seed": 0} for _, _, about in files]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert all(float(str(about.measured["cpu_seconds"])) <= CPU_SECONDS_MAX for _, _, about in files)
    weights = [network.weights["point.weight"].tobytes() for _, network, _ in files]
    assert len(set(weights)) == len(weights)


def test_the_ablations_are_of_one_seed_and_length() -> None:
    files = network_evaluation.load_all(TRAINED, "ablation-")
    assert all(name in network_evaluation.ABLATIONS for name, _, _ in files)
    lengths = {
        (about.recipe["seed"], about.recipe["iterations"], about.measured["iterations"])
        for _, _, about in files
    }
    assert len(lengths) <= 1
