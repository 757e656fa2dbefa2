"""What the tests of backends share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.backends.places import place_for_tasks


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for real tasks, of which nothing may be left."""
    with place_for_tasks() as directory:
        yield directory
