"""The learned model ``edge``: the network for elastic tasks that comes with the package."""

from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from hanse.model.advice import Advice, AdviceRequest
from hanse.policy.edge.advice import advise
from hanse.policy.edge.network import EdgeNetwork, from_arrays

NETWORK_FILE: Final = "edge-2.npz"
"""Network that comes with the package."""


class EdgeModel:
    """Network that advises; see ``models.AdviceModel``."""

    def __init__(self, network: EdgeNetwork) -> None:
        self._network = network

    def advise(self, request: AdviceRequest) -> tuple[Advice, ...]:
        """Return the network's choices."""
        return advise(self._network, request)


def load_edge_model() -> EdgeModel | str:
    """Return the model with the shipped network, or a sentence that says why it cannot be used."""
    network = load_network(Path(str(files("hanse.policy.edge").joinpath(NETWORK_FILE))))
    return network if isinstance(network, str) else EdgeModel(network)


def load_network(path: Path) -> EdgeNetwork | str:
    """Return the network of a file, or a sentence that says why it cannot be used."""
    with np.load(path, allow_pickle=False) as kept:
        about = bytes(kept["about"])
        arrays = {name: kept[name] for name in kept.files if name != "about"}
    loaded = from_arrays(arrays, about)
    return f"{path.name} cannot be used: {loaded}" if isinstance(loaded, str) else loaded[0]
