"""File of a trained network. No torch, no pickle: arrays and one JSON header."""

from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from hanse.policy.edge.network import EdgeNetwork, NetworkHeader, choose_by_network, from_arrays
from hanse.policy.edge.priced import PricedRule, shared_room
from hanse.sim.edge.play import Player, choice_player

SHIPPED_NETWORK: Final = "edge-2.npz"
"""Network that comes with the package."""


def load_network(path: Path) -> tuple[EdgeNetwork, NetworkHeader] | str:
    """Return the network and its header, or a sentence why the file cannot be used."""
    try:
        with np.load(path, allow_pickle=False) as file:
            about = bytes(file["about"])
            arrays = {name: file[name] for name in file.files if name != "about"}
    except (OSError, ValueError, KeyError) as error:
        return f"{path.name} is not a trained edge network: {error}"
    loaded = from_arrays(arrays, about)
    return f"{path.name} cannot be used: {loaded}" if isinstance(loaded, str) else loaded


def shipped_path() -> Path:
    """Return the path of the package's trained network."""
    return Path(str(files("hanse.policy.edge").joinpath(SHIPPED_NETWORK)))


def network_player(network: EdgeNetwork, rule: PricedRule) -> Player:
    """Return a player for a trained network with everything shared."""
    return choice_player(lambda view: choose_by_network(network, rule, view, shared_room(view)))
