"""The soak, for half a minute: its parts work together, and the league keeps its promises meanwhile."""

from tools.soak.__main__ import tell
from tools.soak.run import Options, soak

SECONDS = 30.0


def test_a_short_soak_breaks_no_promise() -> None:
    outcome = soak(Options(SECONDS, seed=7, clients=3, pause=1.0, fault_pause=3.0, longest=5.0))
    assert not outcome.violations, tell(outcome)
    assert outcome.figures["jobs"] > 0
    assert outcome.figures["attempts"] > 0
    assert sum(outcome.figures["faults"].values()) > 0
