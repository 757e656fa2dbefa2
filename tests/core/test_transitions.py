"""States of tasks and attempts change as the tables say, in whole simulated leagues under faults."""

from typing import Any

import msgspec
import pytest

from hanse.core.broker import admission, broker
from hanse.core.broker.failover import standby, takeover
from hanse.core.broker.job_table import (
    CANCELLED,
    STATE_NAMES,
    SUCCEEDED,
    TRANSITIONS,
    WAITING,
    JobRecord,
    new_record,
)
from hanse.core.warden import claim_acceptance
from hanse.core.warden.attempts import ATTEMPT_TRANSITIONS
from hanse.core.warden.ledger_records import ORDERED, RUNNING, STOPPING, AttemptRecord
from hanse.sim.chaos import run_seed
from hanse.sim.shipped_league import shipped_factories

SEEDS = (*range(24), 30, 37, 69, 72)
"""Together they show every change; if one is missing after a change of the simulator, take more seeds."""

Change = tuple[int, int]


class WatchedStates(bytearray):
    """States of a job's tasks that note every change. Slices are set to waiting when a group is queued, and
    to cancelled when many tasks end together. Any other slice is the beginning of an adopted job."""

    seen: set[Change]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, int):
            self.seen.add((self[key], value))
        elif value and set(value) <= {WAITING, CANCELLED}:
            self.seen.update(zip(self[key], value, strict=True))
        super().__setitem__(key, value)


class WatchedRun(AttemptRecord):
    """An attempt that notes every change of its state."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state":
            ATTEMPTS.add((self.state, value))
        super().__setattr__(name, value)


ATTEMPTS: set[Change] = set()


@pytest.fixture(scope="module")
def changes() -> tuple[set[Change], set[Change]]:
    """All changes of tasks and of attempts in some simulated leagues."""
    seen: set[Change] = set()

    def watched(*given: Any) -> JobRecord:
        record = new_record(*given)
        states = WatchedStates(record.state)
        states.seen = seen
        record.state = states
        return record

    ATTEMPTS.clear()
    with pytest.MonkeyPatch.context() as patch:
        for module in (admission, standby, takeover):
            patch.setattr(module, "new_record", watched)
        patch.setattr(claim_acceptance, "AttemptRecord", WatchedRun)
        patch.setattr(broker, "encode_state", msgspec.msgpack.Encoder(enc_hook=bytes).encode)
        for seed in SEEDS:
            assert run_seed(seed, shipped_factories()).finding is None
    return seen, set(ATTEMPTS)


def test_tasks_change_their_states_as_the_table_says(changes: tuple[set[Change], set[Change]]) -> None:
    """No other change happens, and the table invents none."""
    odd = {(before, after) for before, after in changes[0] if before != after} ^ set(TRANSITIONS)
    assert not odd, sorted((STATE_NAMES[before], STATE_NAMES[after]) for before, after in odd)


def test_attempts_change_their_states_as_the_table_says(changes: tuple[set[Change], set[Change]]) -> None:
    assert changes[1] == set(ATTEMPT_TRANSITIONS)
    assert {state for change in ATTEMPT_TRANSITIONS for state in change} == {ORDERED, RUNNING, STOPPING}


def test_terminal_states_are_never_left() -> None:
    assert all(before < SUCCEEDED for before, _ in TRANSITIONS)
