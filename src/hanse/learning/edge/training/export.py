"""Trained network as a small versioned file. ``load_network`` reads it where files may be read."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hanse.learning.edge.network.network import FORMAT
from hanse.learning.edge.network.network_file import load_network
from hanse.learning.edge.training.net import EdgeNet
from hanse.learning.edge.training.train import TrainConfig

__all__ = ["export", "load_network"]


def export(net: EdgeNet, recipe: TrainConfig, measured: dict[str, Any], path: Path) -> None:
    """Write weights (float32), shape, training recipe and measurements."""
    unused = () if net.config.flat else ("flat_hidden", "flat_point", "flat_size")
    about = {
        "format": FORMAT,
        "heads": net.config.heads,
        "encoder": net.config.encoder,
        "pointer": net.config.pointer,
        "flat": net.config.flat,
        "recipe": msgspec.to_builtins(recipe),
        "measured": measured,
    }
    arrays = {
        name: value.detach().numpy().astype(np.float32)
        for name, value in net.state_dict().items()
        if name.split(".")[0] not in unused
    }
    header = np.frombuffer(json.dumps(about, sort_keys=True).encode(), dtype=np.uint8)
    np.savez_compressed(path, about=header, **arrays)
