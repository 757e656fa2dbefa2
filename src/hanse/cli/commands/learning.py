"""Commands of learned policies: ``train NAME``, ``eval NAME``, ``report NAME``.

The commands of a policy are in a module of its own, which is imported when one of them is used.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import click

LEARNED_POLICIES: Final[dict[str, str]] = {"edge": "hanse.learning.edge.cli"}
"""Modules of learned policies by name.

Each has a table ``COMMANDS`` of its commands by group. A policy whose module is not installed is not listed.
"""


class LearnedPolicyGroup(click.Group):
    """Group with one command per learned policy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the policies that are installed."""
        del ctx
        return [name for name, module in LEARNED_POLICIES.items() if _is_installed(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the policy's commands and return the one of this group; None if there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(LEARNED_POLICIES[cmd_name]).COMMANDS.get(self.name)
        assert command is None or isinstance(command, click.Command), f"{cmd_name} has no command {self.name}"
        return command


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # one of the packages above it is missing
        return False


train = LearnedPolicyGroup("train", help="Train a policy.")
evaluate = LearnedPolicyGroup("eval", help="Measure policies on the same streams.")
report = LearnedPolicyGroup("report", help="Write a page of results.")
