"""What waits in a queue of the cluster's own, asked at real doors: of a warden, and of a runner elsewhere."""

import msgspec

from hanse.api.records import WaitsAnswer
from hanse.security.identity import Identity, Role
from tests.live.harness import LiveLeague
from tests.live.http.conftest import Said, ask

PATH = "/v1/waits/1-0"


def asked(live: LiveLeague, cluster: str, path: str = PATH) -> Said:
    member = Identity(live.league.name, Role.WARDEN, cluster)
    return ask(live.league.cluster(cluster).door, live.credentials.client_context(member), "GET", path)


def test_where_there_is_no_queue_nothing_waits(live: LiveLeague) -> None:
    job = live.submit({"cpus": 1, "command": "true", "clusters": {"allow": ["north"]}})
    said = asked(live, "north", f"/v1/waits/{job}")
    assert (said.status, msgspec.json.decode(said.body, type=WaitsAnswer)) == (200, WaitsAnswer())


def test_of_a_runner_elsewhere_the_runner_is_asked(live: LiveLeague) -> None:
    first = msgspec.json.decode(asked(live, "far").body, type=WaitsAnswer)
    assert first == WaitsAnswer(elsewhere=(0,))
    said = asked(live, "far", f"{PATH}?node=0")
    runner = live.league.cluster("far").runners[0]
    assert (said.status, said.headers["x-hanse-runner"]) == (307, runner.name)
    assert said.headers["location"] == f"https://{runner.door}{PATH}?node=0"
    assert live.runner(runner.name).ask("GET", f"{PATH}?node=0")["waits"] == []


def test_what_is_no_job_is_refused(live: LiveLeague) -> None:
    assert asked(live, "north", "/v1/waits/herring").status == 422
    assert asked(live, "north", f"{PATH}?limit=0").status == 422
