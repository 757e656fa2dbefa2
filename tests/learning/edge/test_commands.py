"""The commands run, answer in JSON, and refuse with a sentence."""

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from hanse.learning.edge.cli import eval_edge
from hanse.learning.edge.env.policy_interface import NONE
from hanse.learning.edge.env.published_observation import observe
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.evaluation.policy_evaluation import half_width, setting_by_name
from hanse.learning.edge.network import network_file
from hanse.learning.edge.players.play import priced_player


def test_eval_gives_json_for_common_streams() -> None:
    arguments = ["--seeds", "2", "--setting", "syn3", "--policy", "priced", "--policy", "network", "--json"]
    answer = CliRunner().invoke(eval_edge, arguments)
    assert answer.exit_code == 0, answer.output
    rows = json.loads(answer.output)
    assert [row["policy"] for row in rows] == ["priced", "network"]
    assert all(2.9 < row["mean"] < 5.0 for row in rows)
    again = CliRunner().invoke(eval_edge, arguments)
    assert [row["mean"] for row in json.loads(again.output)] == [row["mean"] for row in rows]


def test_eval_refuses_an_unknown_policy_and_a_bad_file(tmp_path: Path) -> None:
    answer = CliRunner().invoke(eval_edge, ["--seeds", "1", "--policy", "oracle"])
    assert answer.exit_code == 1
    assert "no policy 'oracle'" in answer.output
    (tmp_path / "bad.npz").write_bytes(b"bad")
    arguments = ["--seeds", "1", "--policy", "network", "--network", str(tmp_path / "bad.npz")]
    answer = CliRunner().invoke(eval_edge, arguments)
    assert answer.exit_code == 1
    assert "not a trained edge network" in answer.output


def test_the_shipped_network_is_small_and_says_where_it_comes_from() -> None:
    path = network_file.shipped_path()
    assert path.stat().st_size < 512 * 1024
    loaded = network_file.load_network(path)
    assert not isinstance(loaded, str)
    assert loaded[1].measured["iterations"]
    assert loaded[1].recipe["method"] == "crn"


def test_students_factor() -> None:
    means = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert abs(half_width(means) - 2.2622 * means.std(ddof=1) / np.sqrt(10)) < 0.03


def test_the_published_observation() -> None:
    setting = setting_by_name("syn3")
    world = EdgeWorld(setting, make_streams(setting, [1, 2]))
    player = priced_player(setting)
    for _ in range(25):
        player(world)
    seen = observe(world)
    filled = world.state.pend != NONE
    assert (seen.pending[..., 2] == ~filled).all()
    assert (seen.pending[..., 3:].sum(axis=-1) == filled).all()
    assert (seen.pending[filled][:, :2] == [2, 1]).all()
    going = world.state.run != NONE
    assert (seen.running[..., 2:4].sum(axis=-1) == going).all()
    assert (seen.running[~going] == 0).all()
    assert going.any()
    assert (seen.server[..., :2] == world.state.free).all()
