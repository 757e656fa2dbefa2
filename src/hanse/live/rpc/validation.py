"""Last check before a machine: decides if a well-typed message is valid.

Machines trust their events: one that breaks an assertion ends the daemon. So a message is checked by
everything that can be checked without the machine's state. The opposite rule is as strict: *no message that a
correct machine can send may be refused*, because a sequenced message is repeated until it is accepted, and
one that never is blocks its link. So bounds exclude the impossible, not the unusual.

Two things are remembered or looked up. The layout of a cluster (number of nodes, resources) is learned from
its snapshots. A message that contradicts the known layout may be honest (the cluster was reconfigured and the
snapshot is under way), so the result is ``STALE``: the envelope is dropped, the sender repeats it, and the
connection stays. The number of tasks of a job comes from ``ValidationContext.count_tasks``.
"""

from collections.abc import Callable, Iterable
from typing import Final

from hanse.live.rpc.field_validators import NUMBER_MAX
from hanse.live.rpc.message_validators import VALIDATORS
from hanse.live.rpc.validation_context import STALE, Layout, ValidationContext
from hanse.model import messages as m

__all__ = ["STALE", "ValidationContext", "validate", "validate_frame"]

_SEQUENCED: Final = frozenset(m.SequencedMessage.__args__)


def validate(envelope: m.Envelope, context: ValidationContext) -> str | None:
    """Return the problem of a message, in a few words; None if its machine may have it. Changes nothing."""
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
    return VALIDATORS[kind](body, context, envelope.source)


def validate_frame(
    envelopes: Iterable[m.Envelope], context_of: Callable[[str], ValidationContext]
) -> tuple[list[m.Envelope], int, str]:
    """Return the messages of a frame that may be delivered, the number of stale ones, and why none may be.

    ``build_context`` returns the context of a target. The layouts of snapshots hold at once for the messages
    after them, and are forgotten if the frame is refused.
    """
    accepted: list[m.Envelope] = []
    stale = 0
    before: list[tuple[ValidationContext, dict[str, Layout]]] = []
    for envelope in envelopes:
        context = context_of(envelope.target)
        problem = validate(envelope, context)
        if problem is None:
            accepted.append(envelope)
            if type(envelope.body) is m.ClusterSnapshot:
                before.append((context, dict(context.layouts)))
                context.learn_layout(envelope.body)
        elif problem == STALE:
            stale += 1
        else:
            for context, layouts in reversed(before):
                context.layouts = layouts
            return [], 0, f"{type(envelope.body).__name__} of {envelope.source}: {problem}"
    return accepted, stale, ""
