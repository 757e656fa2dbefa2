"""``hanse league`` at a real league under load, as docs/operator/membership.md says."""

from typing import Any

import yaml

from hanse.client.exit_codes import ExitCode
from hanse.league.file import load
from tests.live.commands import Hand, jobs_end, until
from tests.live.harness import QUICK, LiveLeague, open_directory, running, stop_launchers

NODES = [{"count": 2, "cpus": 2, "memory": "256MiB"}]
LEAGUE = yaml.safe_dump(
    {
        "league": "hansa",
        "timings": QUICK,
        "brokers": [{"name": name} for name in ("broker-1", "broker-2", "broker-3")],
        "clusters": [{"name": name, "nodes": NODES} for name in ("north", "south")],
    }
)
LONG = {"command": "sleep 3", "count": 8, "retries": 3}


def submitted(live: LiveLeague, job: dict[str, Any], broker: str) -> str:
    """The id of a job with a client id, once a broker has taken it."""
    made = ""

    def is_taken() -> bool:
        nonlocal made
        try:
            made = live.submit(job, broker)
        except (AssertionError, OSError):  # the broker starts again, or does not know the cluster yet
            return False
        return True

    until(is_taken, f"{broker} takes {job}")
    return made


def lands_on(live: LiveLeague, cluster: str, broker: str, count: int = 2) -> None:
    """Work for that cluster alone is done there."""
    job = {"count": count, "command": "true", "clusters": {"allow": [cluster]}}
    made = submitted(live, {**job, "client_id": f"on-{cluster}-{count}"}, broker)
    jobs_end(live, [made], broker)
    assert {task["cluster"] for task in live.tasks(made, broker)} == {cluster}


def clusters_of(live: LiveLeague, job: str) -> set[str]:
    """Where the latest attempts of a job's tasks are or were."""
    return {task["cluster"] for task in live.tasks(job, "broker-1")}


def join(hand: Hand, role: str, name: str) -> None:
    """What is left to do for a newcomer that is in the file."""
    hand.types(f"hanse token create --home HOME {role} {name}")
    hand.types("hanse join --home HOME BROKER:7402 --token TOKEN")
    hand.types(f"hanse {role} {name} --home HOME")


def test_members_come_change_and_go_by_commands_while_jobs_run() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        hand = Hand(live, directory)
        try:
            jobs = [live.submit(LONG, "broker-2") for _ in range(2)]
            cluster = "hanse league add cluster west --address HOST:7401 --door HOST:7402 --nodes 2 --cpus 2"
            assert "Nothing was changed" in hand.types(f"{cluster} --dry-run")
            assert "version 1 now" in hand.types(cluster)
            broker = "hanse league add broker broker-4 --address HOST:7401 --door HOST:7402"
            said = hand.types(broker)  # at once: brokers start again just now
            assert "The broker broker-4 is new" in said or "has no change" in said
            assert "has no change: it is version 2" in hand.types(broker)
            assert load(live.home.league_file).joined == (("west", 1), ("broker-4", 2))
            join(hand, "warden", "west")
            join(hand, "broker", "broker-4")
            lands_on(live, "west", "broker-4")
            assert "west" in hand.types("hanse drain west")  # with a context that is older than west
            hand.types("hanse undrain west")
            hand.types("hanse status")
            assert "broker-4" in hand.types("hanse config view")

            file = directory / "league.yaml"
            shown = hand.types("hanse league show")
            file.write_text(shown.replace("count: 2", "count: 3"), encoding="utf-8")
            assert "changes: nodes" in hand.types(f"hanse league apply {file}")
            lands_on(live, "west", "broker-4", count=6)

            refused = hand.types("hanse league retire south", ExitCode.FAILED)
            assert "south accepts work" in refused
            assert "hanse drain south --wait" in refused
            jobs += [submitted(live, {**LONG, "count": 40, "client_id": "last"}, "broker-2")]
            hand.types("hanse league retire broker-2")
            assert live.processes.pop("broker-2").wait(120) != 0
            jobs_end(live, jobs, "broker-3")
        finally:
            live.close()
            stop_launchers(directory)


def test_a_dead_warden_is_retired_by_force_and_its_tasks_run_elsewhere() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        hand = Hand(live, directory)
        jobs = [live.submit({**LONG, "unreachable": "wait"}, "broker-1")]
        until(lambda: "south" in clusters_of(live, jobs[0]), "south runs some of it")
        live.kill("south")
        refused = hand.types("hanse league retire south", ExitCode.FAILED)
        assert "override with --force" in refused
        assert "The cluster south is retired" in hand.types("hanse league retire south --force")
        assert load(live.home.league_file).drained == ()
        jobs_end(live, jobs, "broker-1")
        assert clusters_of(live, jobs[0]) == {"north"}
