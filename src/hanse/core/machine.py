"""Interface of every machine: events in, effects out, all state inside.

The two shells share the whole machine. A shell creates it, replays its journal through ``handle``, then
passes it ``Booted`` and every later event, and performs the returned effects in order.
"""

from typing import Protocol

from hanse.model.effects import Effect
from hanse.model.events import Event


class Machine(Protocol):
    """Broker, warden or runner."""

    name: str
    marks: dict[str, int]
    """Counts of rare branches: coverage marks, not state."""

    def handle(self, event: Event) -> list[Effect]:
        """Handle one event; return the effects for the shell, in order."""
        ...

    def check(self) -> None:
        """Assert the invariants across the machine's parts; cheap enough for every few hundred events."""
        ...

    def dump(self) -> bytes:
        """Return the whole state. Equal histories give equal bytes; ``restore`` accepts them."""
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state by one that ``dump`` returned."""
        ...
