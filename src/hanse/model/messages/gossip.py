"""Gossip of brokers about the members of the league."""

import msgspec


class MemberStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Status of one broker in gossip: its heartbeat rises as long as it lives."""

    name: str
    epoch: int
    beat: int
    version: int = 0  # of the league file that it uses


class Gossip(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="gossip"):
    """Members of the league as the sender knows them."""

    members: tuple[MemberStatus, ...]
