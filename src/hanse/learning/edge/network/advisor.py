"""Model of the policy process: the shipped network as a function from a broker's request to advice."""

from collections.abc import Callable
from functools import partial

from hanse.learning.edge.network.advice import advise
from hanse.learning.edge.network.network_file import load_network, shipped_path
from hanse.model.advice import Advice, AdviceRequest


def load_advisor() -> Callable[[AdviceRequest], tuple[Advice, ...]] | str:
    """Return the shipped network's advisor, or a sentence why its file cannot be used."""
    loaded = load_network(shipped_path())
    return loaded if isinstance(loaded, str) else partial(advise, loaded[0])
