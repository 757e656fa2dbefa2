"""Clients that we did not write use the doors: curl, a client generated from the document, and a fuzzer."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hanse.security.identity import Role
from tests.live.harness import LiveLeague
from tests.live.http.conftest import ask, ledger, nobody

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
EXAMPLES = int(os.environ.get("HANSE_SCHEMA_EXAMPLES", "10"))
"""Cases of each operation; 'make schema' tries many more."""
SEED = os.environ.get("HANSE_SCHEMA_SEED", "7")
PHASES = os.environ.get("HANSE_SCHEMA_PHASES", "examples,fuzzing")
RUN_SECONDS_MAX = 1_800


def program(name: str) -> str:
    """A tool, beside this Python or on the path; the test is skipped if there is none."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def token(live: LiveLeague) -> str:
    return ledger(live).create(Role.ADMIN, "clients", 1)


def curl(live: LiveLeague, token: str, path: str, *more: str, door: str = "") -> Any:
    """What curl gets, which checks the host's name in the certificate by itself."""
    place = door or str(live.league.broker("b1").door)
    done = subprocess.run(
        [program("curl"), "--silent", "--show-error", "--fail-with-body", "--max-time", "60",
         "--cacert", str(live.credentials.authority_path), "-H", f"Authorization: Bearer {token}", *more,
         f"https://{place}{path}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout} {done.stderr}"
    return json.loads(done.stdout)


def test_curl_submits_waits_and_asks_why(live: LiveLeague, token: str) -> None:
    body = json.dumps({"jobs": [{"name": "by-curl", "command": "true", "count": 2}]})
    job = curl(live, token, "/v1/jobs", "--json", body, "-H", "Idempotency-Key: curl-1")["results"][0]["job"]
    again = curl(live, token, "/v1/jobs", "--json", body, "-H", "Idempotency-Key: curl-1")["results"][0]
    assert again["job"] == job
    assert curl(live, token, f"/v1/jobs/{job}/wait?timeout=60")["state"] == "succeeded"
    assert curl(live, token, f"/v1/jobs/{job}/why")["sentences"]
    assert curl(live, token, "/v1/cluster", door=str(live.league.cluster("north").door))["cluster"] == "north"


def test_a_generated_client_uses_the_league(
    live: LiveLeague, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = program("openapi-python-client")
    made = subprocess.run(
        [tool, "generate", "--path", str(REFERENCE / "openapi.json"), "--meta", "none", "--output-path",
         str(tmp_path / "league_client"), "--config", str(_quiet(tmp_path))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Unable" not in made.stdout, made.stdout
    monkeypatch.syspath_prepend(str(tmp_path))
    package = importlib.import_module("league_client")
    models = importlib.import_module("league_client.models")

    def call(operation: str, *arguments: Any, **named: Any) -> Any:
        module = importlib.import_module(f"league_client.api.default.{operation}")
        return module.sync(*arguments, client=client, **named)

    with package.AuthenticatedClient(
        base_url=f"https://{live.league.broker('b1').door}", token=token, verify_ssl=nobody(live)
    ) as client:
        assert call("health").ok
        form = models.JobForm(name="generated", command="true", count=3)
        answer = call("submit_jobs", body=models.SubmitRequest(jobs=[form]))
        job = answer.results[0].job
        assert call("wait_for_job", job, timeout=60).state == "succeeded"
        assert call("get_job", job).row.name == "generated"
        assert [task.index for task in call("list_tasks", job).tasks] == [0, 1, 2]
        assert call("list_jobs", name="generated").jobs[0].id == job
        assert call("explain_job", job).sentences
        assert {cluster.name for cluster in call("get_league").clusters} == {"north", "far"}
        assert len(call("list_nodes").nodes) == 4
        missing = call("get_job", "1-4000000000")
        assert missing.error.code == "not_found"


def _quiet(directory: Path) -> Path:
    """A configuration without the tools that lay generated code out."""
    path = directory / "generator.json"
    path.write_text('{"post_hooks": []}', encoding="utf-8")
    return path


@pytest.mark.parametrize("door", ["broker", "warden"])
def test_no_request_gets_an_answer_that_is_not_documented(
    live: LiveLeague, token: str, tmp_path: Path, door: str
) -> None:
    tool = program("schemathesis")
    place = live.league.broker("b1").door if door == "broker" else live.league.cluster("north").door
    if door == "broker":
        live.wait(live.submit({"name": "example", "command": "true", "count": 2}))
        live.broker().close()  # it would be idle for longer than a door keeps a connection
    config = tmp_path / "schemathesis.toml"
    # A job that fits the schema may break a rule that no schema can say.
    config.write_text(
        "\n".join(
            f'[[operations]]\ninclude-operation-id = "{name}"\n'
            "[operations.checks.positive_data_acceptance]\nenabled = false\n"
            for name in (
                *("submit_jobs", "plan_job", "join_league", "renew_certificate", "drain_nodes"),
                "apply_league_file",
            )
        ),
        encoding="utf-8",
    )
    done = subprocess.run(
        [tool, "--config-file", str(config), "run", f"https://{place}/openapi.json",
         "--tls-verify", str(live.credentials.authority_path), "-H", f"Authorization: Bearer {token}",
         "--seed", SEED, "--max-examples", str(EXAMPLES), "--phases", PHASES, "--rate-limit", "auto",
         "--exclude-path", "/v1/events", "--request-timeout", "90", "--no-color", "--continue-on-failure"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=RUN_SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert ask(place, nobody(live), "GET", "/healthz").status == 200
    for name in live.processes:
        assert '"level": "error"' not in live.log(name), name
