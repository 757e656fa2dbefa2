"""Exported networks: they decide as the trained ones do, and other files are refused."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hanse.learning.edge.env import setting as settings  # noqa: E402
from hanse.learning.edge.env.streams import make_streams  # noqa: E402
from hanse.learning.edge.env.world import EdgeWorld  # noqa: E402
from hanse.learning.edge.network.features import encode  # noqa: E402
from hanse.learning.edge.network.network import (  # noqa: E402
    choose_by_network,
    local_states,
    pointer_logits,
    read_summaries,
)
from hanse.learning.edge.players.coordination import GossipLink, coordinate  # noqa: E402
from hanse.learning.edge.players.play import priced_player  # noqa: E402
from hanse.learning.edge.policies.priced import shared_room  # noqa: E402
from hanse.learning.edge.training.domain_randomisation import rule_of  # noqa: E402 - after the check that torch is there
from hanse.learning.edge.training.export import export, load_network  # noqa: E402
from hanse.learning.edge.training.greedy_player import choose_by_net  # noqa: E402
from hanse.learning.edge.training.net import FULL_LEAN, NO_LEAN, EdgeNet, NetConfig  # noqa: E402
from hanse.learning.edge.training.rollout import make_batch, run_pointer  # noqa: E402
from hanse.learning.edge.training.train import TrainConfig  # noqa: E402

torch.set_num_threads(1)
SMALL = msgspec.structs.replace(settings.syn3(), tasks_per_cluster=6)
SHAPES = [
    NetConfig(),
    NetConfig(encoder="mean"),
    NetConfig(encoder="none"),
    NetConfig(pointer=False),
    NetConfig(encoder="none", flat=True),
    NetConfig(lean=FULL_LEAN),
    NetConfig(lean=NO_LEAN),
    NetConfig(told=True),
]


def halfway() -> EdgeWorld:
    world = EdgeWorld(settings.hetero6(), make_streams(settings.hetero6(), [1, 2, 3]))
    player = priced_player(settings.hetero6())
    for _ in range(30):
        player(world)
    return world


@pytest.mark.parametrize(
    "config", SHAPES, ids=lambda c: f"{c.encoder}-{c.pointer}-{c.flat}-{c.told}-{c.lean}"
)
def test_the_exported_network_is_the_trained_one(config: NetConfig, tmp_path: Path) -> None:
    torch.manual_seed(3)
    net = EdgeNet(config)
    with torch.no_grad():  # an untrained network would do as the rule does, or pass everywhere
        for layer in (net.point, net.pass_point, net.cpus, net.gpus, net.flat_point):
            layer.weight.normal_(0.0, 0.3)
        net.pass_point.bias.sub_(5.0)
        net.flat_point.bias[-1].sub_(5.0)
    export(net, TrainConfig(net=config), {"note": "untrained"}, tmp_path / "net.npz")
    loaded = load_network(tmp_path / "net.npz")
    assert not isinstance(loaded, str)
    network, about = loaded
    assert about.measured == {"note": "untrained"}
    world = halfway()
    rule = rule_of(world.setting)
    view = world.view()
    ours = choose_by_network(network, rule, view, shared_room(view))
    theirs = choose_by_net(net, rule, view)
    assert (ours.slot == theirs.slot).all()
    assert (ours.cpus == theirs.cpus).all()
    assert (ours.gpus == theirs.gpus).all()
    assert (ours.slot >= 0).any()
    deciding = encode(rule, view, shared_room(view)).may_choose.any(axis=2)
    assert np.abs(ours.preference - theirs.preference)[deciding].max() < 1e-5


def test_logits_equal_torch(tmp_path: Path) -> None:
    torch.manual_seed(4)
    net = EdgeNet(NetConfig())
    with torch.no_grad():
        net.point.weight.normal_()
        net.pass_point.weight.normal_()
    export(net, TrainConfig(), {}, tmp_path / "net.npz")
    loaded = load_network(tmp_path / "net.npz")
    assert not isinstance(loaded, str)
    world = halfway()
    rule = rule_of(world.setting)
    features = encode(rule, world.view(), shared_room(world.view()))
    local, task, summary = local_states(loaded[0], features)
    everyone = np.broadcast_to(summary[:, None], (len(summary), 6, *summary.shape[1:]))
    apart = read_summaries(loaded[0], local, everyone, features.known)
    assert np.abs(apart - read_summaries(loaded[0], local, summary, features.known)).max() < 1e-5
    ours, _ = pointer_logits(loaded[0], apart, task, features)
    batch = make_batch(features)
    row, col = torch.nonzero(batch.may_choose.any(dim=2), as_tuple=True)
    with torch.no_grad():
        theirs = run_pointer(net, batch, row, col).logits
    assert np.abs(ours[row.numpy(), col.numpy()] - theirs.numpy()).max() < 1e-5


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", about=np.frombuffer(b'{"format": 0}', dtype=np.uint8))
    answer = load_network(tmp_path / "old.npz")
    assert isinstance(answer, str)
    assert "format 0" in answer
    (tmp_path / "junk.npz").write_bytes(b"junk")
    assert isinstance(load_network(tmp_path / "junk.npz"), str)


def test_a_network_without_an_encoder_has_nothing_to_gossip_but_its_room(tmp_path: Path) -> None:
    torch.manual_seed(8)
    net = EdgeNet(NetConfig(encoder="none"))
    export(net, TrainConfig(), {}, tmp_path / "net.npz")
    loaded = load_network(tmp_path / "net.npz")
    assert not isinstance(loaded, str)
    streams, rule = make_streams(SMALL, [1, 2]), rule_of(SMALL)
    heard_of, deaf = (
        coordinate(SMALL, streams, rule, "gossip", loaded[0], GossipLink(loss=loss)) for loss in (0.0, 1.0)
    )
    alone = coordinate(SMALL, streams, rule, "none", loaded[0])
    assert (deaf.outcome.completion == alone.outcome.completion).all()
    assert (heard_of.outcome.completion >= 2).all()
