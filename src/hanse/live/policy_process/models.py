"""Registry of learned models: what the policy process can load to advise its broker.

A sizer names its model (``Sizer.model``). The process imports the model's module, the broker never does.
"""

from typing import Final, Protocol

from hanse.model.advice import Advice, AdviceRequest
from hanse.registry import Registry


class AdviceModel(Protocol):
    """Loaded model. It has no state that outlives the process, which can be killed at any time."""

    def advise(self, request: AdviceRequest) -> tuple[Advice, ...]:
        """Return advice for waiting groups of the request; the broker's guard may put it aside."""
        ...


class ModelLoader(Protocol):
    """Entry of the group ``hanse.models``."""

    def __call__(self) -> AdviceModel | str:
        """Return the model, or a sentence that says why it cannot be used."""
        ...


MODELS: Final = Registry[ModelLoader]("learned model", "hanse.models", ("edge",), ("__call__",))


def load_model(name: str) -> AdviceModel | str:
    """Return the model of this name, or a sentence that says why it cannot be used."""
    return MODELS.find_problem(name) or MODELS.get(name)()
