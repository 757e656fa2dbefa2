"""A broker's read model is lost or wrong: it is built anew from the journal, and says the same."""

from tests.live.harness import open_directory, running

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters: [{name: north, backend: "null", nodes: [{count: 2, cpus: 4}]}]
"""


def test_a_read_model_that_was_deleted_comes_back_from_the_journal() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        jobs = [live.submit({"name": f"job-{number}", "count": 3, "command": "true"}) for number in range(5)]
        before = [(live.wait(job)["succeeded"], live.tasks(job)) for job in jobs]
        live.kill("b1")
        for path in live.home.member("b1").glob("reads.sqlite*"):
            path.unlink()
        live.start("b1").settle()
        after = [(live.wait(job)["succeeded"], live.tasks(job)) for job in jobs]
        for (count, tasks), (count_again, tasks_again) in zip(before, after, strict=True):
            assert count == count_again == 3
            for task, again in zip(tasks, tasks_again, strict=True):
                assert (task["state"], task["attempt"], task["cluster"], task["code"]) == (
                    *(again["state"], again["attempt"], again["cluster"], again["code"]),
                )


def test_a_damaged_read_model_is_set_aside() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        job = live.submit({"command": "true"})
        live.wait(job)
        live.kill("b1")
        path = live.home.member("b1") / "reads.sqlite"
        path.write_bytes(b"this was a database" * 100)
        live.start("b1").settle()
        assert live.wait(job)["state"] == "succeeded"
