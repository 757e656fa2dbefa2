"""Promise that a machine's state is what its snapshot and journal give."""

from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.state_diff import first_difference
from hanse.sim.world import Violation


def check_replay(process: JournalledProcess) -> None:
    """Check that a fresh machine with the process's snapshot and journal has the process's state."""
    state, replayed_state = process.machine.dump(), process.replay().dump()
    if state != replayed_state:
        difference = first_difference(state, replayed_state)
        raise Violation(
            "ledger equals journal replay", f"the journal of {process.name} gives another state: {difference}"
        )
