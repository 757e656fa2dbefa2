"""One authority for all tests of the wire: making certificates takes its time."""

import pytest

from tests.security.leagues import PaperLeague


@pytest.fixture(scope="session")
def league(tmp_path_factory: pytest.TempPathFactory) -> PaperLeague:
    return PaperLeague(tmp_path_factory.mktemp("league"))
