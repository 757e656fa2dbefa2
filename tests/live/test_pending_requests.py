"""Requests that wait for a machine's answer."""

import asyncio

from hanse.live.pending_requests import PendingRequests, RequestBatch
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.ids import JobId


def test_who_waits_goes_on_before_what_is_asked_for_behind_the_answer() -> None:
    """A submitter is answered before the write that its answer's cause still needs."""

    async def story() -> None:
        requests, batch, order = PendingRequests(1), RequestBatch(1), []
        number = requests.open(batch, 0)

        async def submitter() -> None:
            assert await batch.wait(3_600.0)
            order.append("answered")

        waiting = asyncio.create_task(submitter())
        await asyncio.sleep(0)
        requests.on_reply(JobAccepted("me", number, JobId(1)))
        asyncio.get_running_loop().call_soon(order.append, "written")
        await waiting
        await asyncio.sleep(0)
        assert order == ["answered", "written"]

    asyncio.run(story())


def test_a_batch_waits_for_all_and_no_longer_than_it_may() -> None:
    async def story() -> None:
        requests, batch = PendingRequests(1), RequestBatch(3)
        numbers = [requests.open(batch, index) for index in range(3)]
        requests.on_reply(JobAccepted("me", numbers[2], JobId(7)))
        requests.on_reply(RequestRejected("me", numbers[0], "no room"))
        assert not await batch.wait(0.0)
        assert [type(answer) for answer in batch.replies] == [RequestRejected, type(None), JobAccepted]
        requests.on_reply(JobAccepted("me", numbers[1], JobId(8)))
        assert await batch.wait(0.0)
        assert await RequestBatch(0).wait(0.0)
        requests.on_reply(JobAccepted("me", numbers[1], JobId(9)))  # nobody waits for it
        assert batch.replies[1] == JobAccepted("me", numbers[1], JobId(8))

    asyncio.run(story())


def test_equal_submissions_under_way_are_all_answered_by_the_one_answer() -> None:
    async def story() -> None:
        requests, first, second = PendingRequests(1), RequestBatch(1), RequestBatch(1)
        number = requests.open(first, 0, "mine")
        assert requests.join(second, 0, "mine") == number
        assert requests.join(RequestBatch(1), 0, "another") is None
        requests.on_reply(JobAccepted("me", number, JobId(7)))
        assert await first.wait(0.0)
        assert await second.wait(0.0)
        assert first.replies == second.replies == [JobAccepted("me", number, JobId(7))]

    asyncio.run(story())
