"""Large payloads travel in several messages, each of a size that the wire carries."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hanse.core.messaging.message_splitting import MESSAGE_BYTES_MAX, split_by_bytes
from hanse.model.effects import JobAccepted
from hanse.model.ids import SECOND
from hanse.model.job import PAYLOAD_BYTES_MAX, TaskGroup
from hanse.model.messages import Claim, ReplicateJobs, RunnerOrders
from hanse.model.resources import Resources
from tests.core.wired import Wired, job, node

LIMIT = 16 << 20
"""What a live league's wire carries in one envelope."""


@given(st.lists(st.integers(0, 2 * MESSAGE_BYTES_MAX), max_size=40), st.integers(1, 10))
def test_portions_are_all_of_it_in_order_and_within_bounds(sizes: list[int], most: int) -> None:
    parts = [list(part) for part in split_by_bytes(sizes, lambda size: size, most)]
    assert [size for part in parts for size in part] == sizes
    assert all(1 <= len(part) <= most for part in parts)
    assert all(len(part) == 1 or sum(part) <= MESSAGE_BYTES_MAX for part in parts)


def test_no_message_of_a_league_with_large_payloads_is_too_large() -> None:
    league = Wired({"c1": (node(64_000),)}, ("b1", "b2"))
    large = TaskGroup(count=24, ask=Resources(cpu=1_000), payload=b"x" * PAYLOAD_BYTES_MAX)
    league.submit(job(large))
    requests = [
        league.hand_in(job(msgspec.structs.replace(large, count=1, payload=bytes([n]) * PAYLOAD_BYTES_MAX)))
        for n in range(24)
    ]
    league.run(5 * SECOND)
    assert all(isinstance(league.replies[request], JobAccepted) for request in requests)
    assert len(league.live) == 48
    largest = {
        kind: max(len(msgspec.msgpack.encode(body)) for body in league.bodies(kind))
        for kind in (Claim, RunnerOrders, ReplicateJobs)
    }
    assert all(size < LIMIT for size in largest.values()), largest
