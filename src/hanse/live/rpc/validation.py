"""The last check before a machine: whether a well-typed message makes sense.

Machines trust what they are given, and what they are given is on their journal before they take it: an event
that crashed one would crash it again at every restart. So a message is judged here by everything that can be
judged without the machine's state. The rule in the other direction is as strict: *nothing that a correct
machine can say may be refused*, because a sequenced message is repeated until it is taken, and one that never
is stops its link for ever. Bounds are therefore what is impossible, not what is unusual.

Two things need to be remembered or looked up. What a cluster looks like (how many nodes, which resources) is
learned from its snapshots; news that does not fit what is known may be honest (the cluster has been
reconfigured and the snapshot is on its way), so it is answered with ``STALE``: that envelope is dropped, the
sender will repeat it, and nobody is cut off. And how many tasks a job has: ``Limits.tasks``.
"""

from collections.abc import Callable, Iterable
from typing import Final

from hanse.live.rpc.field_validators import NUMBER_MAX
from hanse.live.rpc.message_validators import VETTERS
from hanse.live.rpc.validation_context import STALE, Layout, Limits
from hanse.model import messages as m

__all__ = ["STALE", "Limits", "vet", "vet_frame"]

_SEQUENCED: Final = frozenset(m.SequencedMessage.__args__)


def vet(envelope: m.Envelope, limits: Limits) -> str | None:
    """What is wrong with a message, in a few words; None if its machine may have it. Changes nothing."""
    seq, body = envelope.seq, envelope.body
    kind = type(body)
    if (seq > 0) is not (kind in _SEQUENCED):
        return "a number for the wrong kind of message"
    if not (
        -NUMBER_MAX <= seq <= NUMBER_MAX
        and 0 <= envelope.ack <= NUMBER_MAX
        and 0 <= envelope.session <= NUMBER_MAX
    ):
        return "a number, an acknowledgement or a session out of range"
    return VETTERS[kind](body, limits, envelope.source)


def vet_frame(
    envelopes: Iterable[m.Envelope], limits: Callable[[str], Limits]
) -> tuple[list[m.Envelope], int, str]:
    """The messages of a frame that may be delivered, how many are stale, and why none may be (or nothing).

    ``limits`` gives those of a target. What snapshots teach counts at once for what follows them, and is
    forgotten again if the frame is refused.
    """
    good: list[m.Envelope] = []
    stale = 0
    before: list[tuple[Limits, dict[str, Layout]]] = []
    for envelope in envelopes:
        judge = limits(envelope.target)
        problem = vet(envelope, judge)
        if problem is None:
            good.append(envelope)
            if type(envelope.body) is m.ClusterSnapshot:
                before.append((judge, dict(judge.layouts)))
                judge.learn(envelope.body)
        elif problem == STALE:
            stale += 1
        else:
            for judge, layouts in reversed(before):
                judge.layouts = layouts
            return [], 0, f"{type(envelope.body).__name__} of {envelope.source}: {problem}"
    return good, stale, ""
