"""Validation against the layouts of clusters: what is stale, what may change, what is remembered."""

from typing import Any

import pytest

from hanse.core.config import BrokerConfig
from hanse.live.rpc.validation import validate, validate_frame
from hanse.live.rpc.validation_context import STALE, Layout, broker_validation_context
from hanse.model import messages as m
from hanse.model.messages import Envelope
from tests.live.rpc.message_samples import SNAPSHOT, TASK, delta, limits_for, snapshot, verdict


def mail(body: Any) -> Envelope:
    return Envelope("c1", "b1", 0, 0, 0, body)


@pytest.mark.parametrize(
    "changes", [{"nodes": (0, 4)}, {"free": ((1, 2), (0, 0))}, {"epoch": 9, "nodes": (0, 7)}]
)
def test_news_of_another_layout_is_stale_and_nobodys_fault(changes: dict[str, Any]) -> None:
    assert verdict(delta(**changes)) == STALE
    limits = limits_for(SNAPSHOT)
    good, stale, reason = validate_frame([mail(delta()), mail(delta(**changes))], lambda _: limits)
    assert (good, stale, reason) == ([mail(delta())], 1, "")


def test_a_cluster_may_grow_from_one_life_to_the_next_but_not_shrink() -> None:
    five = {"capacity": ((1, 1, 1),) * 5, "free": ((1, 1, 1),) * 5, "attributes": ((),) * 5, "reserve": ()}
    three = {"capacity": ((1, 1, 1),) * 3, "free": ((1, 1, 1),) * 3, "attributes": ((),) * 3, "reserve": ()}
    richer = {
        "dimensions": ("cpu", "memory", "gpu", "x"),
        "capacity": ((1,) * 4,) * 4,
        "free": ((1,) * 4,) * 4,
    }
    assert verdict(snapshot(**five)) is None
    assert verdict(snapshot(**richer)) is None
    assert verdict(snapshot(**three)) == STALE
    assert verdict(snapshot(epoch=0, **three)) is None, "of an earlier life: nobody will look at it"
    limits = limits_for(SNAPSHOT)
    grown = [mail(snapshot(**five)), mail(delta(epoch=2, nodes=(0, 4)))]
    assert validate_frame(grown, lambda _: limits) == (grown, 0, "")
    assert limits.layouts["c1"] == Layout(2, 5, SNAPSHOT.dimensions)


def test_a_refused_frame_teaches_nothing() -> None:
    limits = limits_for(SNAPSHOT)
    before = dict(limits.layouts)
    five = {"capacity": ((1, 1, 1),) * 5, "free": ((1, 1, 1),) * 5, "attributes": ((),) * 5}
    good, stale, reason = validate_frame(
        [mail(snapshot(**five)), mail(m.TaskUpdates(((TASK, -1, 0),), ()))], lambda _: limits
    )
    assert (good, stale) == ([], 0)
    assert "TaskUpdates of c1" in reason
    assert limits.layouts == before


def test_without_a_snapshot_nothing_is_known_of_a_layout() -> None:
    limits = broker_validation_context(BrokerConfig("b1", 1, ("b1",), ("c1",)))
    assert validate(mail(delta(nodes=(0, 99))), limits) is None
