"""A league whose tasks may use this very Python, and the context that leads to it."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hanse.cli.embedded.league_setup import PERSON
from hanse.client.contexts import Context, save_context
from tests.live.harness import LiveLeague, open_directory, running

USER = pwd.getpwuid(os.geteuid()).pw_name
"""Hands run as whoever runs the tests: nobody may not be able to enter this interpreter's directory."""
LEAGUE = f"""
brokers: [{{name: b1}}, {{name: b2}}]
clusters:
  - name: north
    backend: {{kind: process, user: {USER}}}
    nodes: [{{count: 2, cpus: 2, memory: 1GiB, attributes: {{zone: a}}}}]
  - name: south
    backend: {{kind: process, user: {USER}}}
    nodes: [{{count: 2, cpus: 2, memory: 1GiB, attributes: {{zone: b}}}}]
"""


def context_of(live: LiveLeague) -> Context:
    league = live.league
    return Context(
        league.name,
        str(live.home.path),
        str(live.home.person(PERSON)),
        {entry.name: str(entry.door) for entry in league.brokers},
        {entry.name: str(entry.door) for entry in league.clusters},
    )


@contextmanager
def sdk_league(description: str = LEAGUE) -> Iterator[LiveLeague]:
    """A running league that is the current context of this process."""
    with open_directory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANSE_CONFIG", str(directory / "config.json"))
        patch.delenv("HANSE_CONTEXT", raising=False)
        with running(directory / "home", description) as live:
            save_context("test", context_of(live), make_current=True)
            yield live
