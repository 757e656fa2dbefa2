"""Network of a golden script: messages wait until a command delivers them."""

from random import Random

from hanse.model.ids import MILLISECOND
from hanse.model.messages import Envelope
from hanse.sim.network import SimulatedLink, SimulatedNetwork
from hanse.sim.scripts.script_log import BACKGROUND_MESSAGES
from hanse.sim.world import VirtualWorld


class ManualNetwork(SimulatedNetwork):
    """Network that delivers messages on command."""

    __slots__ = ("in_flight", "manual")

    def __init__(self, world: VirtualWorld, manual: bool) -> None:
        super().__init__(world, Random(0))
        self.manual = manual
        self.in_flight: list[tuple[SimulatedLink, Envelope]] = []

    def send(self, link: SimulatedLink, envelope: Envelope) -> None:
        """Keep the message, or deliver it a millisecond later."""
        if link.cuts:
            if self.world.story is not None:
                self.world.story.on_message_lost(self.world.now, envelope, "cut off")
        elif self.manual and not isinstance(envelope.body, BACKGROUND_MESSAGES):
            self.in_flight.append((link, envelope))
        else:
            self.world.call_at(self.world.now + MILLISECOND, link.receive, envelope)
