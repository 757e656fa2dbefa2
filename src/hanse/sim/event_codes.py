"""Numbers of kinds of events and messages in the digest."""

from typing import Final

from hanse.model.events import (
    AdviceReceived,
    BackendReported,
    Booted,
    CancelRequested,
    CapacityWithheld,
    DrainRequested,
    JobSubmitted,
    MessageReceived,
    TaskExited,
    TaskStarted,
    Tick,
)
from hanse.model.messages import Message

EVENT_KINDS: Final[tuple[type, ...]] = (
    Booted,
    Tick,
    MessageReceived,
    JobSubmitted,
    CancelRequested,
    DrainRequested,
    BackendReported,
    TaskStarted,
    TaskExited,
    CapacityWithheld,
    AdviceReceived,
)
"""Kinds of events; the position of a kind is its number in the digest."""
BODY_CODES: Final[dict[type, int]] = {body: code for code, body in enumerate(Message.__args__)}
"""Number of each kind of message."""
BOOTED, TICK, RECEIVED, SUBMITTED, CANCEL, DRAIN, BACKEND, STARTED, EXITED, WITHHELD, ADVISED = range(
    len(EVENT_KINDS)
)
