"""Learned model ``edge`` of the policy process: the shipped network that sizes elastic tasks."""

from hanse.learning.edge.network.advice import advise
from hanse.learning.edge.network.network import EdgeNetwork
from hanse.learning.edge.network.network_file import load_network, shipped_path
from hanse.model.advice import Advice, AdviceRequest


class EdgeModel:
    """Network that advises; see ``hanse.live.policy_process.models.AdviceModel``."""

    def __init__(self, network: EdgeNetwork) -> None:
        self._network = network

    def advise(self, request: AdviceRequest) -> tuple[Advice, ...]:
        """Return the network's choices."""
        return advise(self._network, request)


def load_advisor() -> EdgeModel | str:
    """Return the model with the shipped network, or a sentence that says why its file cannot be used."""
    loaded = load_network(shipped_path())
    return loaded if isinstance(loaded, str) else EdgeModel(loaded[0])
