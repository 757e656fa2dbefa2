"""Nonsense from certified peers: whatever passes the checks of the wire, no machine breaks on it."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hanse.live.history_check import HISTORY_MESSAGES
from hanse.live.rpc import message_validators
from hanse.live.rpc.peer_permissions import ALLOWED_MESSAGES
from tests.live.rpc.nonsense import Dice, Harness, Stage

SCRIPT = Path(__file__).with_name("fuzz_frames.py")
SECONDS = 30
TALES = 600


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize("who", ["broker", "warden"])
def test_no_tale_breaks_a_machine(stage: Stage, who: str) -> None:
    harness = Harness(getattr(stage, who))
    for seed in range(TALES):
        harness.tale(Dice(Random(seed)))
    assert harness.taken > TALES // 2, "the tales get past the checks often enough to mean something"
    assert harness.told - harness.taken > TALES // 4, "and are caught often enough"


@pytest.mark.parametrize("who", ["broker", "warden"])
def test_every_kind_of_message_to_a_machine_is_told(stage: Stage, who: str) -> None:
    target = getattr(stage, who)
    kinds: set[Any] = {
        kind for (_, to), said in ALLOWED_MESSAGES.items() if to is target.role for kind in said
    }
    kinds -= HISTORY_MESSAGES  # the daemon answers them
    assert {kind.__struct_config__.tag for kind in kinds} == set(target.seeds)


def test_tales_find_what_vetting_leaves_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tales break the machines when nothing is vetted: it is vetting that protects them."""
    for kind in message_validators.VALIDATORS:
        monkeypatch.setitem(message_validators.VALIDATORS, kind, lambda _body, _limits, _source: None)
    broken = 0
    for harness in (Harness(stage.broker), Harness(stage.warden)):
        for seed in range(300):
            try:
                harness.tale(Dice(Random(seed)))
            except Exception:  # noqa: BLE001  any
                broken += 1
    assert broken > 0


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_guided_fuzzing_finds_nothing(tmp_path: Path) -> None:
    """A short run; ``make fuzz`` is the long one."""
    command = [sys.executable, str(SCRIPT), f"-max_total_time={SECONDS}", "-seed=1"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stderr[-4_000:]
    assert "Done" in result.stderr
    assert list(tmp_path.iterdir()) == []
