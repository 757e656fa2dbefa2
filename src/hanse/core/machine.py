"""The shape of every machine: events in, commands out, all state inside.

The unit that the two shells share is the whole machine. A shell creates it, replays its journal through
``handle``, then hands it ``Booted`` and every later event; after each it performs the returned commands in
order.
"""

from typing import Protocol

from hanse.model.effects import Effect
from hanse.model.events import Event


class Machine(Protocol):
    """A broker, a warden or a runner."""

    name: str
    marks: dict[str, int]
    """How often each rare branch was taken: coverage marks, not state."""

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; return what the shell must do, in order."""
        ...

    def check(self) -> None:
        """Assert the invariants that span the machine's parts; cheap enough for every few hundred events."""
        ...

    def dump(self) -> bytes:
        """The whole state. Equal histories give equal bytes; ``restore`` takes them back."""
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state by one that ``dump`` gave."""
        ...
