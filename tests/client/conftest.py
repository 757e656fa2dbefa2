"""What tests of the live league's commands share: a file of contexts of their own, and canned leagues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.canned import CannedLeague, canned_league


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees, or changes, the contexts of whoever runs it."""
    path = tmp_path / "config" / "config.json"
    monkeypatch.setenv("HANSE_CONFIG", str(path))
    for name in ("HANSE_CONTEXT", "HANSE_TENANT", "HANSE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def canned(tmp_path: Path) -> Iterator[CannedLeague]:
    """A league with prepared answers."""
    with canned_league(tmp_path / "league") as league:
        yield league
