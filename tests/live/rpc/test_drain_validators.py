"""Drains in beats: what honest wardens say passes, what makes no sense does not."""

import pytest

from hanse.core.config import BrokerConfig
from hanse.live.rpc.validation import validate
from hanse.live.rpc.validation_context import broker_validation_context
from hanse.model.drains import DRAINED_NODES_REPORTED_MAX, DRAINS_REPORTED_MAX, Drain
from hanse.model.ids import ClusterId
from hanse.model.messages import Envelope, WardenHeartbeat

NOW = 1_000_000


def verdict(*drains: Drain) -> str | None:
    """What a broker's vetting says of a beat with these drains."""
    limits = broker_validation_context(BrokerConfig("b1", 1, ("b1",), ("c1",)))
    limits.clock = lambda: NOW
    beat = WardenHeartbeat(ClusterId("c1"), 1, NOW, 6, (), drains)
    return validate(Envelope("c1", "b1", 0, 0, 0, beat), limits)


def test_drains_as_wardens_tell_them_pass() -> None:
    assert verdict(Drain((1, 2), "ada", "new disks", NOW, NOW + 1)) is None
    assert verdict(Drain(())) is None
    assert verdict(*(Drain((node,)) for node in range(DRAINS_REPORTED_MAX))) is None


@pytest.mark.parametrize(
    "drains",
    [
        (Drain((-1,)),),
        (Drain((), "ada", "a\x1b[31m"),),
        (Drain((), "a\u202eda"),),
        (Drain((), "ada", "", -1),),
        (Drain((1,)),) * (DRAINS_REPORTED_MAX + 1),
        (Drain((0,) * (DRAINED_NODES_REPORTED_MAX + 1)),),
    ],
    ids=["node", "reason", "name", "instant", "drains", "nodes"],
)
def test_nonsense_is_refused(drains: tuple[Drain, ...]) -> None:
    assert verdict(*drains)
