"""Fixtures of the client's tests, for the tests of the command line."""

from tests.client.conftest import canned, own_config

__all__ = ["canned", "own_config"]
