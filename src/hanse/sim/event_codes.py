"""Numbers of kinds of events and messages in the digest."""

from typing import Final

from hanse.model.messages import Message

BOOTED, TICK, RECEIVED, SUBMITTED, CANCEL, DRAIN, BACKEND, CHANGED, WITHHELD, ADVISED = range(10)
BODY_CODES: Final[dict[type, int]] = {body: code for code, body in enumerate(Message.__args__)}
"""Number of each kind of message."""
