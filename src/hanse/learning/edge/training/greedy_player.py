"""Greedy player of a torch network: for validation, and as the reference for the exported network."""

import numpy as np
import torch

from hanse.learning.edge.env.policy_interface import Choice, EdgeView
from hanse.learning.edge.network.features import encode
from hanse.learning.edge.players.play import Player, choice_player
from hanse.learning.edge.policies.guard import without_starvation
from hanse.learning.edge.policies.priced import PricedRule, shared_room
from hanse.learning.edge.training.net import EdgeNet
from hanse.learning.edge.training.rollout import (
    decide,
    make_batch,
    make_choice,
    restrict_to_oldest,
    sizes_by_slot,
)


@torch.no_grad()
def choose_by_net(net: EdgeNet, rule: PricedRule, view: EdgeView) -> Choice:
    """Return the network's likeliest choices, with no task left to starve."""
    features = restrict_to_oldest(net, encode(rule, view, shared_room(view)), view)
    rows = np.flatnonzero(features.may_choose.any(axis=(1, 2)))
    decided = decide(net, make_batch(features, rows), sizes_by_slot(net, rule, view, rows), None)
    choice = make_choice(decided, (view.task.shape[0], view.task.shape[1]), rows, view.task.shape[2])
    return without_starvation(rule, view, choice)


def torch_player(net: EdgeNet, rule: PricedRule) -> Player:
    """Return a player for the network."""
    return choice_player(lambda view: choose_by_net(net, rule, view))
