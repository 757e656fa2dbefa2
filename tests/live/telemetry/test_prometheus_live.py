"""A real Prometheus server scrapes a real league with the configuration that is shipped."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from hanse.cli.embedded.league_setup import certify_one
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from tests.live.harness import Door, LiveLeague, open_directory, running
from tests.live.telemetry.scraped import UNTIL_SECONDS_MAX, missing, prometheus, samples_of, total

DEPLOY = Path(__file__).parents[3] / "deploy"
JOBS = 20
TASKS = 3
LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, backend: "null", nodes: [{count: 2, cpus: 4, memory: 1GiB}]}
  - name: south
    backend: "null"
    nodes: [{cpus: 2, memory: 1GiB, runner: far}]
    runners: [{name: far}]
"""
WORD = re.compile(r"\b((?:hanse|process)_[a-z_]+|up)\b(?!=)")
SUFFIXES = ("_bucket", "_sum", "_count")
TRACED = ("hanse_trace_spans_dropped_total", "hanse_trace_spans_exported_total")
"""Metrics of a league that exports traces."""

no_prometheus = pytest.mark.skipif(bool(missing("prometheus")), reason=missing("prometheus"))
no_promtool = pytest.mark.skipif(bool(missing("promtool")), reason=missing("promtool"))


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    """A league that has run twenty jobs of three tasks, and refused one request."""
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        jobs = [
            league.submit({"command": "true", "tenant": "physics", "count": TASKS}, name)
            for name in ("b1", "b2")
            for _ in range(JOBS // 2)
        ]
        for job in jobs:
            league.wait(job, "b1" if job.startswith("1-") else "b2")
        assert league.broker().raw("GET", "/v1/jobs/1-4000000000")[0] == 404
        yield league


def scraped(live: LiveLeague) -> dict[str, bytes]:
    """What every member answers to a scrape."""
    doors = {
        "b1": live.broker("b1"),
        "b2": live.broker("b2"),
        "north": live.cluster("north"),
        "south": live.cluster("south"),
        "far": live.runner("far"),
    }
    answers = {}
    for name, door in doors.items():
        status, answers[name] = door.raw("GET", "/metrics")
        assert status == 200, answers[name]
    return answers


def viewer(live: LiveLeague, role: Role = Role.VIEWER) -> Credentials:
    """Somebody's certificate."""
    place = live.home.person(f"a-{role}")
    certify_one(Authority.open(live.home.authority), place, Identity(live.league.name, role, f"a-{role}"))
    return Credentials(place)


def shipped_config(live: LiveLeague, directory: Path) -> Path:
    """The shipped configuration, with this league's members and a quick hand."""
    data: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    credentials = viewer(live)
    league = live.league
    targets = {
        "hanse-broker": [str(entry.door) for entry in league.brokers],
        "hanse-warden": [str(entry.door) for entry in league.clusters],
        "hanse-runner": [str(runner.door) for entry in league.clusters for runner in entry.runners],
    }
    data["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    data["rule_files"] = [str(DEPLOY / name) for name in data["rule_files"]]
    for scrape in data["scrape_configs"]:
        files = {"ca_file": credentials.authority_path, "cert_file": credentials.path}
        files["key_file"] = credentials.path
        assert set(files) | {"min_version"} == set(scrape["tls_config"])
        scrape["tls_config"] |= {name: str(path) for name, path in files.items()}
        scrape["static_configs"] = [{"targets": targets.pop(scrape["job_name"])}]
    assert not targets
    config = directory / "prometheus.yml"
    config.write_text(yaml.safe_dump(data), encoding="utf-8")
    return config


@no_prometheus
def test_a_prometheus_server_scrapes_the_league_and_counts_what_was_done(
    live: LiveLeague, tmp_path: Path
) -> None:
    with prometheus(tmp_path, shipped_config(live, tmp_path)) as server:
        server.until('sum(up{job=~"hanse-.*"})', 5)
        assert {health for health, _ in server.targets().values()} == {"up"}
        server.until("sum(hanse_jobs_submitted_total)", JOBS)
        server.until('sum(hanse_jobs_finished_total{tenant="physics",outcome="succeeded"})', JOBS)
        server.until('sum(hanse_jobs{state="succeeded"})', JOBS)
        server.until("sum(hanse_tasks_finished_total)", JOBS * TASKS)
        server.until('sum(hanse_backend_ends_total{outcome="succeeded",job="hanse-warden"})', JOBS * TASKS)
        server.until("sum(hanse_queue_wait_seconds_count)", JOBS)
        server.until('hanse_cluster_capacity{cluster="north",resource="cpu"}', 8)
        server.until('sum(hanse_cluster_allocated{resource="cpu"})', 0)
        server.until("sum(hanse_cluster_up)", 4)
        groups = server.ask("/api/v1/rules")["groups"]
        assert [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"] == []


def test_every_member_shows_numbers_that_agree(live: LiveLeague) -> None:
    answers = scraped(live)
    found = {name: samples_of(answer) for name, answer in answers.items()}
    brokers = [found["b1"], found["b2"]]

    def everywhere(name: str, **labels: str) -> float:
        return sum(total(each, name, **labels) for each in found.values())

    assert [total(each, "hanse_jobs_submitted_total", tenant="physics") for each in brokers] == [10, 10]
    assert everywhere("hanse_jobs_finished_total", outcome="succeeded") == JOBS
    assert everywhere("hanse_placements_total") - everywhere("hanse_placements_total", result="refused") == 60
    assert everywhere("hanse_placements_total", result="refused") == everywhere("hanse_claim_conflicts_total")
    wardens = [found["north"], found["south"]]
    assert sum(total(each, "hanse_backend_starts_total") for each in wardens) == 60
    assert total(found["far"], "hanse_backend_starts_total") == total(
        found["south"], "hanse_backend_starts_total"
    )
    assert 0 < everywhere("hanse_start_latency_seconds_count") <= 60
    assert everywhere("hanse_door_requests_total", route="/v1/jobs", method="POST", status="200") == JOBS
    assert total(found["b1"], "hanse_door_refusals_total", code="not_found") == 1
    assert everywhere("hanse_pending_jobs") == 0
    for name, each in found.items():
        (info,) = [labels for metric, labels in each if metric == "hanse_build_info"]
        assert dict(info)["member"] == name
        assert each["process_resident_memory_bytes", ()] > 10_000_000


def test_only_who_may_look_sees_the_metrics(live: LiveLeague) -> None:
    """Members may not: they have no business with each other's figures."""
    mine = live.credentials
    places = ((Role.BROKER, "b1"), (Role.WARDEN, "north"), (Role.RUNNER, "far"))
    try:
        for who, status in ((Role.VIEWER, 200), (Role.RUNNER, 403)):
            live.credentials = viewer(live, who)
            for role, name in places:
                with closing(Door(live, role, name)) as door:
                    assert door.raw("GET", "/metrics")[0] == status
    finally:
        live.credentials = mine


def drain(live: LiveLeague, close: bool) -> None:
    """Close all nodes to new work, or open them; and wait until the first broker knows."""
    for cluster in ("north", "south"):
        live.cluster(cluster).ask("POST", "/v1/drain", {"whole": True, "drain": close})
    deadline = time.monotonic() + UNTIL_SECONDS_MAX
    while (total(samples_of(scraped(live)["b1"]), "hanse_view_free", resource="cpu") == 0) != close:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the outside world: there is nothing to await


def test_counters_go_on_and_jobs_stay_known_after_a_restart(live: LiveLeague) -> None:
    drain(live, True)
    before = samples_of(scraped(live)["b1"])
    job = live.submit({"command": "true", "tenant": "later"})
    assert total(samples_of(scraped(live)["b1"]), "hanse_pending_jobs", tenant="later", reason="no_room") == 1
    live.kill("b1")
    live.start("b1").settle()
    after = samples_of(scraped(live)["b1"])
    assert total(after, "hanse_jobs", tenant="physics", state="succeeded") == total(
        before, "hanse_jobs", tenant="physics", state="succeeded"
    )
    assert total(after, "hanse_pending_jobs", tenant="later") == 1
    drain(live, False)
    live.wait(job)
    ended = samples_of(scraped(live)["b1"])
    assert total(ended, "hanse_pending_jobs", tenant="later") == 0
    assert total(ended, "hanse_jobs_finished_total", tenant="later", outcome="succeeded") == 1


@no_promtool
def test_promtool_finds_nothing_wrong_with_what_members_show(live: LiveLeague) -> None:
    for name, answer in scraped(live).items():
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=answer, capture_output=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, b""), f"{name}: {done}"


@no_promtool
def test_the_alerts_are_sound_and_each_is_shown_to_fire_and_to_be_silent() -> None:
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tests = yaml.safe_load((DEPLOY / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    for alert in alerts():
        mine = [case for test in tests for case in test["alert_rule_test"] if case["alertname"] == alert]
        assert sorted(bool(case["exp_alerts"]) for case in mine) == [False, True], alert


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_exist(live: LiveLeague) -> None:
    names = {"up", *TRACED}
    for answer in scraped(live).values():
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", answer.decode(), re.MULTILINE):
            names |= {f"{name}{suffix}" for suffix in (SUFFIXES if kind == "histogram" else ("",))}
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    asked = {target["expr"] for panel in panels for target in panel["targets"]}
    asked |= {rule["expr"] for rule in alerts().values()}
    assert len(asked) > 40
    for expression in asked:
        words = set(WORD.findall(expression))
        assert words, expression
        assert words <= names, f"{expression}: {words - names}"


def test_every_metric_and_every_alert_is_documented_as_it_is(live: LiveLeague) -> None:
    docs = DEPLOY.parent / "docs"
    page = (docs / "reference" / "metrics.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `((?:hanse|process)_\w+)` \| (\w+) \|", page, re.MULTILINE))
    shown = dict.fromkeys(TRACED, "counter")
    for answer in scraped(live).values():
        shown |= dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.decode(), re.MULTILINE))
    assert documented == shown
    guide = (docs / "operator" / "monitoring.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Hanse\w+)` \|", guide, re.MULTILINE) == list(alerts())


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    assert board["uid"] == "hanse-league"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(dict.fromkeys(ids))
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        own = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not own & cells, f"{panel['title']} lies on another panel"
        cells |= own
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${source}"}
    variables = {entry["name"] for entry in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(board["panels"])))
    assert used <= variables, used - variables


def alerts() -> dict[str, Any]:
    """The shipped alerts by name."""
    data = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    return {rule["alert"]: rule for group in data["groups"] for rule in group["rules"]}


@no_prometheus
def test_a_dead_member_shows(live: LiveLeague, tmp_path: Path) -> None:
    """Last, because counters begin anew with a restart."""
    with prometheus(tmp_path, shipped_config(live, tmp_path)) as server:
        server.until('sum(up{job=~"hanse-.*"})', 5)
        live.kill("south")
        server.until('up{job="hanse-warden"} == 0', 0)
        server.until('min(hanse_cluster_up{cluster="south"})', 0)
        live.start("south").settle()
        server.until('min(hanse_cluster_up{cluster="south"})', 1)
