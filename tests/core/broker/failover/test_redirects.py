"""Who speaks for a job: the way from door to door ends at the owner, also where what brokers know is old."""

from hanse.core.broker.broker import Broker
from hanse.model.ids import SECOND, JobId, job_id
from tests.core.wired import Wired, job, node, tasks


def broker(league: Wired, name: str) -> Broker:
    machine = league.machines[name]
    assert isinstance(machine, Broker)
    return machine


def way(league: Wired, first: str, number: JobId) -> list[str]:
    """The brokers that are asked about a job, in turn; "" at the end if the last one knows nobody."""
    path = [first]
    while len(path) < 9:
        here = broker(league, path[-1]).find_answering_broker(number, path)
        if here == path[-1]:
            return path
        path.append(here)
        if not here:
            return path
    raise AssertionError(f"they point on and on: {path}")


def taken_over() -> tuple[Wired, JobId]:
    """A job of b1 that b2 has adopted while b1 was away; b1 is back."""
    league = Wired({"c1": (node(),)}, ("b1", "b2", "b3"))
    number = league.submit(job(tasks(1)), "b1")
    league.deaf["b1"] = True
    league.run(20 * SECOND)
    assert broker(league, "b2").is_owner_of(number)
    league.boot("b1")
    league.run(20 * SECOND)
    return league, number


def test_a_job_is_spoken_for_by_its_owner_and_by_its_adopter() -> None:
    league, number = taken_over()
    assert way(league, "b1", number) == ["b1", "b2"]
    assert way(league, "b2", number) == ["b2"]
    assert way(league, "b3", number)[-1] == "b2"
    league.end(number)
    league.run(20 * SECOND)
    for name in ("b1", "b2", "b3"):
        assert way(league, name, number)[-1] == "b2"
    league.restart("b1")
    assert way(league, "b1", number) == ["b1", "b2"]


def test_doors_do_not_point_at_each_other_when_the_adopter_has_forgotten_the_job() -> None:
    league, number = taken_over()
    league.end(number)
    league.run(20 * SECOND)
    broker(league, "b2")._lifecycle.dependencies.ended_jobs.clear()  # as after very many other jobs
    assert broker(league, "b1").find_answering_broker(number) == "b2"
    assert broker(league, "b2").find_answering_broker(number) == "b1", "it has that broker's number"
    assert way(league, "b1", number) == ["b1", "b2", ""]
    assert way(league, "b2", number) == ["b2", "b1", ""]


def test_nobody_is_pointed_to_who_is_out_of_reach_or_unknown() -> None:
    league, number = taken_over()
    assert broker(league, "b3").find_answering_broker(job_id(2, 77)) == "b2"
    assert broker(league, "b3").find_answering_broker(job_id(9, 1)) == ""
    assert broker(league, "b2").find_answering_broker(job_id(2, 77)) == ""
    league.deaf["b2"] = True
    league.run(6 * SECOND)
    assert broker(league, "b1").find_answering_broker(number) in ("", "b3")
