"""Models of the policy process by name: functions from a broker's request to advice.

A model stands above this room, so it is named here by a text and imported only in the policy process.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from hanse.model.advice import Advice, AdviceRequest

Advisor = Callable[[AdviceRequest], tuple[Advice, ...]]

MODELS: Final[dict[str, str]] = {"edge": "hanse.learning.edge.network.advisor:load_advisor"}
"""Loaders by model, as ``module:function``; a loader returns an advisor, or a sentence why there is none."""
DEFAULT_MODEL: Final = "edge"
"""Model of the sizer ``network``."""


def load_model(name: str) -> Advisor | str:
    """Return the advisor of a model, or a sentence why it cannot be used."""
    if name not in MODELS:
        return f"there is no model {name!r}; installed are: {', '.join(MODELS) or 'none'}"
    module, _, function = MODELS[name].partition(":")
    try:
        loaded: Advisor | str = getattr(import_module(module), function)()
    except ModuleNotFoundError as error:
        return f"the model {name!r} is not installed: {error}"
    return loaded
