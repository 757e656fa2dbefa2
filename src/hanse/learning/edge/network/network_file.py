"""File of a trained network. No torch, no pickle: arrays and one JSON header."""

from pathlib import Path  # noqa: TID251 - the one module of this folder that reads a file
from typing import Final

import numpy as np

from hanse.learning.edge.network.network import EdgeNetwork, NetworkHeader, from_arrays

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
    return Path(__file__).with_name(SHIPPED_NETWORK)
