"""Fixtures of the client's tests, for the tests of the SDK."""

from tests.client.conftest import canned, own_config

__all__ = ["canned", "own_config"]
