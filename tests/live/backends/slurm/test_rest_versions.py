"""Which version of slurmrestd's interface is spoken."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.live.backends.process.launch_requests import find_task_user
from hanse.live.backends.slurm.driver import SlurmSubmission, SlurmUnavailableError
from hanse.live.backends.slurm.factory import make_slurm_backend
from hanse.live.backends.slurm.rest import RestDriver
from hanse.live.backends.slurm.rest_versions import (
    KNOWN_VERSIONS,
    choose_version,
    no_common_message,
    offered_versions,
)
from hanse.live.backends.slurm.settings import SlurmSettings
from tests.live.backends.slurm.fixture import REST_VERSIONS, Slurm, missing, slurm_clusters
from tests.live.backends.slurm.places import until

RECORDED = Path(__file__).with_name("openapi-22.05.8.json")
"""The document of a real slurmrestd, all that it had to offer loaded, without what is below its paths."""


def paths(*versions: str, slash: str = "") -> dict[str, object]:
    return {"paths": {f"/slurm/{version}/jobs{slash}": {} for version in versions}}


def test_a_real_document_is_understood() -> None:
    document = json.loads(RECORDED.read_text(encoding="ascii"))
    assert offered_versions(document) == sorted(REST_VERSIONS, reverse=True)
    assert choose_version(offered_versions(document)) == "v0.0.38"


@pytest.mark.parametrize(
    ("document", "versions", "chosen"),
    [
        (paths("v0.0.37", "v0.0.36"), ["v0.0.37", "v0.0.36"], "v0.0.37"),
        (paths("v0.0.38", "v0.0.40", "v0.0.39", slash="/"), ["v0.0.40", "v0.0.39", "v0.0.38"], "v0.0.38"),
        (paths("v0.0.9", "v0.0.100"), ["v0.0.100", "v0.0.9"], None),
        (paths("v0.0.36"), ["v0.0.36"], None),
        ({"paths": {"/slurmdb/v0.0.38/jobs": {}, "/slurm/v0.0.38/job/{job_id}": {}}}, [], None),
        ({"paths": ["/slurm/v0.0.38/jobs"]}, [], None),
        ({}, [], None),
    ],
)
def test_the_newest_that_both_know_is_chosen(
    document: dict[str, object], versions: list[str], chosen: str | None
) -> None:
    assert offered_versions(document) == versions
    assert choose_version(versions) == chosen


def test_it_is_said_what_is_offered_when_nothing_fits() -> None:
    words = no_common_message(["v0.0.41", "v0.0.40"])
    assert all(version in words for version in ("v0.0.41", "v0.0.40", *KNOWN_VERSIONS))
    assert "no version at all" in no_common_message([])


# --- with a real one ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """A cluster whose REST daemon is started anew by each test."""
    if why := missing():
        pytest.skip(why)
    with slurm_clusters("baltic") as (slurm,):
        yield slurm


def driver_on(slurm: Slurm, *versions: str, api: str = "") -> RestDriver:
    if slurm.rest_socket.exists():
        slurm.kill("slurmrestd")
        slurm.rest_socket.unlink()
    slurm.start_rest(*versions)
    token = slurm.base / "token"
    token.write_text(slurm.token(), encoding="ascii")
    settings = SlurmSettings(driver="rest", url=f"unix:{slurm.rest_socket}", token_file=str(token), api=api)
    return RestDriver(settings, find_task_user("nobody"))


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_every_known_version_submits_lists_and_cancels(cluster: Slurm, version: str) -> None:
    name = f"hanse:north:abc:1-0.{version[-2:]}#1"
    order = SlurmSubmission(
        name, "one", "#!/bin/sh\nexec sleep 600\n", 1, 2, 32, (("gpu", 1),), cluster.nodes[0]
    )

    async def story() -> None:
        driver = driver_on(cluster, version)
        before = int(time.time())
        number = await driver.submit(order)
        await until(lambda: cluster.state_of(str(number)) == "RUNNING", "it runs")
        (job,) = [job for job in await driver.jobs() if job.number == number]
        assert (job.name, job.state, job.node) == (name, "RUNNING", cluster.nodes[0])
        assert (job.cpus, job.memory, job.gres) == (2, 32 << 20, (("gpu", 1),))
        assert before <= job.launched_at <= time.time()
        assert "Requeue=0" in cluster.run("scontrol", "show", "job", str(number))
        node = next(node for node in await driver.nodes() if node.name == cluster.nodes[0])
        assert (node.is_open, node.cpus_used, node.memory_used) == (True, 2, 32 << 20)
        assert "batch" in node.partitions
        await driver.cancel([job])
        await until(lambda: cluster.state_of(str(number)) == "CANCELLED", "it is cancelled")

    asyncio.run(story())


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_a_job_that_slurm_takes_with_a_complaint_is_taken(cluster: Slurm, version: str) -> None:
    """So it does when the node is closed: the answer has an error in it, and a number."""
    order = SlurmSubmission("hanse:north:abc:1-1.0#1", "one", "#!/bin/sh\n", 1, 1, 32, (), cluster.nodes[0])

    async def story() -> None:
        driver = driver_on(cluster, version)
        number = await driver.submit(order)
        (job,) = [job for job in await driver.jobs() if job.number == number]
        assert (job.name, job.state, job.launched_at) == (order.name, "PENDING", 0)
        await driver.cancel([job])

    cluster.drain()
    try:
        asyncio.run(story())
    finally:
        cluster.restore()


def test_a_daemon_that_offers_nothing_known_is_named_and_one_that_comes_back_newer_is_used(
    cluster: Slurm,
) -> None:
    async def story() -> None:
        driver = driver_on(cluster, "v0.0.36")
        with pytest.raises(SlurmUnavailableError, match=r"offers v0\.0\.36, and Hanse speaks v0\.0\.38"):
            await driver.jobs()
        settings = SlurmSettings(
            driver="rest", url=f"unix:{cluster.rest_socket}", token_file=str(cluster.base / "token"), poll=1
        )
        with pytest.raises(OSError, match=r"offers v0\.0\.36"):  # which is what ``hanse up`` says
            await make_slurm_backend(cluster.base / "home", "north", (), settings, "").capacity()
        driver_on(cluster, "v0.0.37")
        assert len(await driver.nodes()) == len(cluster.nodes)
        driver_on(cluster, "v0.0.38")
        with pytest.raises(SlurmUnavailableError, match="404"):
            await driver.nodes()
        assert len(await driver.nodes()) == len(cluster.nodes)

    asyncio.run(story())


def test_a_version_that_the_league_file_names_is_used_as_it_is(cluster: Slurm) -> None:
    async def story() -> None:
        assert len(await driver_on(cluster, api="v0.0.37").nodes()) == len(cluster.nodes)
        with pytest.raises(SlurmUnavailableError, match="404"):
            await driver_on(cluster, "v0.0.38", api="v0.0.37").nodes()

    asyncio.run(story())
