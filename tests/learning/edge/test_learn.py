"""Training: a function of its seed that resumes, keeps the best iteration and learns what it should."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hanse.learning.edge.env import setting as settings  # noqa: E402
from hanse.learning.edge.env.setting import Setting  # noqa: E402
from hanse.learning.edge.env.streams import make_streams  # noqa: E402
from hanse.learning.edge.env.world import EdgeWorld  # noqa: E402
from hanse.learning.edge.players.play import (  # noqa: E402
    network_player,
    play,
    priced_player,
)
from hanse.learning.edge.policies.feature_table import RULE_GPUS_COLUMN  # noqa: E402
from hanse.learning.edge.policies.priced import choose_alone, shared_room  # noqa: E402
from hanse.learning.edge.training.domain_randomisation import rule_of, validation_names  # noqa: E402 - after the check that torch is there
from hanse.learning.edge.training.export import export, load_network  # noqa: E402
from hanse.learning.edge.training.greedy_player import choose_by_net  # noqa: E402
from hanse.learning.edge.training.net import FULL_LEAN, NO_LEAN, RULE_COLUMNS, SIZE_LEAN, EdgeNet, NetConfig  # noqa: E402
from hanse.learning.edge.training.policy_gradient import (  # noqa: E402
    PpoConfig,
    group_advantage,
    log_and_entropy,
    update_policy,
)
from hanse.learning.edge.training.rollout import collect, run_pointer  # noqa: E402
from hanse.learning.edge.training.train import TrainConfig, Trainer, TrainingProgress, train  # noqa: E402

torch.set_num_threads(1)
SMALL = msgspec.structs.replace(settings.syn3(), tasks_per_cluster=6)


def test_replayed_log_probabilities_are_those_of_the_collection() -> None:
    torch.manual_seed(1)
    net = EdgeNet(NetConfig())
    streams = make_streams(SMALL, [1, 1, 2, 2])
    memory = collect(net, SMALL, streams, rule_of(SMALL), torch.Generator().manual_seed(5))
    decided = memory.decided
    with torch.no_grad():
        at_point, at_size, _ = log_and_entropy(
            net, memory.batch, decided, torch.arange(len(decided.slot)), decided.row
        )
    assert torch.allclose(at_point, decided.log_point, atol=1e-4)
    assert torch.allclose(at_size, decided.log_size, atol=1e-4)
    assert memory.cost.sum(axis=1) == pytest.approx(memory.completion * SMALL.task_count)
    advantage = group_advantage(memory, 2, PpoConfig())
    assert np.abs(advantage).max() > 0
    twin = {(int(e), int(t)): a for e, t, a in zip(memory.episode, memory.time, advantage, strict=True)}
    shared = [(e, t) for e, t in twin if e % 2 == 0 and (e + 1, t) in twin]
    assert shared
    assert all(twin[e, t] == pytest.approx(-twin[e + 1, t]) for e, t in shared)


@pytest.mark.parametrize("method", ["crn", "mappo"])
def test_training_is_a_function_of_its_seed_and_resumes(method: str, tmp_path: Path) -> None:
    config = TrainConfig(
        method=method,  # type: ignore[arg-type]  # parametrised
        course="fixed",
        warm_start=False,
        iterations=2,
        replicas=2,
        rows=18,
        validate_every=100,
        average=0.5,
    )
    whole, parts = Trainer(config), Trainer(config)
    for trainer in (whole, parts):
        trainer.base = SMALL
    whole.step()
    whole.step()
    parts.step()
    parts.save(tmp_path / "run.pt")
    again = Trainer.load(tmp_path / "run.pt")
    again.base = SMALL
    again.step()
    for name, value in whole.net.state_dict().items():
        assert torch.equal(value, again.net.state_dict()[name]), name
        assert torch.equal(whole.averaged.state_dict()[name], again.averaged.state_dict()[name]), name
    moved = [
        name
        for name, value in whole.net.state_dict().items()
        if not torch.equal(value, whole.averaged.state_dict()[name])
    ]
    assert moved, "the mean of the weights is the last weights"


@pytest.mark.parametrize("make", [settings.hetero6, settings.testbed3, settings.single3])
def test_an_untrained_leaning_network_is_the_rule(make: Callable[[], Setting]) -> None:
    torch.manual_seed(9)
    net, setting = EdgeNet(NetConfig(lean=FULL_LEAN)), make()
    rule = rule_of(setting)
    world = EdgeWorld(setting, make_streams(setting, [4, 5]))
    started = 0
    for _ in range(60):
        view = world.view()
        ours, rules = choose_by_net(net, rule, view), choose_alone(rule, view, shared_room(view))
        assert (ours.slot == rules.slot).all()
        assert (ours.cpus == rules.cpus).all()
        assert (ours.gpus == rules.gpus).all()
        started += int(world.step(ours).started.sum())
    assert started > 20


@pytest.mark.parametrize("flat", [False, True])
def test_a_network_that_is_not_told_the_rules_pick_never_comes_to_see_it(flat: bool) -> None:
    torch.manual_seed(2)
    seen = []
    for told in (False, True):
        net = EdgeNet(NetConfig(told=told, flat=flat, encoder="none" if flat else "attention"))
        memory = collect(net, SMALL, make_streams(SMALL, [1, 2]), rule_of(SMALL), torch.Generator())
        assert memory.batch.task[..., RULE_COLUMNS].any()
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
        gain = np.linspace(-1.0, 1.0, len(memory.episode))
        update_policy(net, optimiser, memory, gain, PpoConfig(), torch.Generator())
        bare = msgspec.structs.replace(memory.batch, task=memory.batch.task.clone())
        bare.task[..., RULE_COLUMNS] = 0.0
        row, col = torch.nonzero(bare.may_choose.any(dim=2), as_tuple=True)
        with torch.no_grad():
            seen.append(
                float(
                    (
                        run_pointer(net, memory.batch, row, col).logits
                        - run_pointer(net, bare, row, col).logits
                    )
                    .abs()
                    .max()
                )
            )
    assert seen[0] == 0.0
    assert seen[1] > 0.0


def test_a_network_leans_late(tmp_path: Path) -> None:
    config = TrainConfig(course="fixed", warm_start=False, replicas=2, rows=18, lean_late=True)
    trainer = Trainer(config)
    trainer.base = SMALL
    trainer.step()
    trainer.save(tmp_path / "run.pt")
    for one in (trainer, Trainer.load(tmp_path / "run.pt")):
        assert one.net.lean.tolist() == list(NO_LEAN)
        assert one.averaged.lean.tolist() == list(SIZE_LEAN)
    early = Trainer(msgspec.structs.replace(config, lean_late=False))
    assert early.net.lean.tolist() == list(SIZE_LEAN)


def test_sizes_that_are_the_rules_are_neither_drawn_nor_learned() -> None:
    torch.manual_seed(6)
    net = EdgeNet(NetConfig(encoder="none", lean=SIZE_LEAN))
    setting = msgspec.structs.replace(settings.hetero6(), tasks_per_cluster=6)
    rule = rule_of(setting)
    memory = collect(net, setting, make_streams(setting, [1, 2]), rule, torch.Generator().manual_seed(1))
    decided = memory.decided
    took = decided.slot < setting.window
    assert int(took.sum()) >= setting.task_count
    raw = memory.batch.task[decided.row[took], decided.col[took], decided.slot[took]]
    free = memory.batch.cluster[decided.row[took], decided.col[took], :2] * 16
    room = np.minimum(free.numpy().round().astype(np.int64), rule.limit)
    flat = np.array([rule.gpus[:, c, g] for c, g in room])
    gpus = decided.gpus[took].numpy() + 1
    assert (flat == gpus[:, None]).any(axis=1).all(), "a size that the rule gives to no kind in this room"
    assert (torch.round(raw[:, RULE_GPUS_COLUMN] * 16) == torch.from_numpy(gpus)).all()
    assert not decided.log_size.any()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    gain = np.linspace(-1.0, 1.0, len(memory.episode))
    update_policy(net, optimiser, memory, gain, PpoConfig(), torch.Generator())
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert {"point.weight", "pass_point.weight", "task_in.weight"} <= changed
    assert not changed & {"cpus.weight", "gpus.weight", "lean"}


def test_the_last_iteration_is_judged_once() -> None:
    plan = TrainConfig(course="fixed", warm_start=False, iterations=2, replicas=2, rows=6, validate_every=2)
    trainer = Trainer(plan)
    trainer.base = SMALL
    small = msgspec.structs.replace(settings.hetero6(), tasks_per_cluster=1)
    plain = play(small, make_streams(small, [1]), priced_player(small)).mean
    trainer._validation_cache = {name: (small, [1], plain) for name in validation_names("fixed")}
    judged: list[int] = []
    judge = trainer.validate

    def counted() -> float:
        judged.append(trainer.iteration)
        return judge()

    trainer.validate = counted  # type: ignore[method-assign]  # the same, counted
    train(trainer, lambda _: None)
    assert judged == [0, 2]


def test_a_short_warm_start_learns_to_pass_and_to_size(tmp_path: Path) -> None:
    shape = NetConfig(lean=NO_LEAN)
    config = TrainConfig(course="fixed", warm_lessons=1, warm_epochs=8, rows=96, net=shape)
    trainer = Trainer(config)
    assert trainer.warm_start() < 1.0
    export(trainer.net, config, {}, tmp_path / "net.npz")
    loaded = load_network(tmp_path / "net.npz")
    assert not isinstance(loaded, str)
    setting = settings.syn3()
    outcome = play(setting, make_streams(setting, [1, 2]), network_player(loaded[0], rule_of(setting)))
    assert outcome.mean.mean() < 5.0


def test_a_run_reports_and_stops_at_its_cpu_limit(tmp_path: Path) -> None:
    config = TrainConfig(
        course="fixed",
        warm_start=False,
        iterations=50,
        replicas=2,
        rows=6,
        validate_every=1,
        cpu_seconds_max=0.01,
    )
    trainer = Trainer(config)
    trainer.base = SMALL
    trainer._validation_cache = {}
    trainer.validate = lambda: 1.0  # type: ignore[method-assign]  # two published settings would take a minute
    seen: list[TrainingProgress] = []
    train(trainer, seen.append, tmp_path / "run.pt")
    assert [one.iteration for one in seen] == [1]
    assert Trainer.load(tmp_path / "run.pt").iteration == 1


def test_the_best_iteration_is_kept_and_not_the_last(tmp_path: Path) -> None:
    small = msgspec.structs.replace(settings.hetero6(), tasks_per_cluster=2)
    plain = play(small, make_streams(small, [1, 2]), priced_player(small)).mean
    trainer = Trainer(TrainConfig(course="fixed", warm_start=False))
    trainer._validation_cache = {name: (small, [1, 2], plain) for name in validation_names("fixed")}
    trainer.iteration = 3
    assert trainer.validate() == trainer.best
    best = {name: value.clone() for name, value in trainer.averaged.state_dict().items()}
    with torch.no_grad():  # passes wherever it may: tasks start only when they have waited too long
        trainer.averaged.pass_point.bias.add_(1_000.0)
    trainer.iteration = 4
    assert trainer.validate() > trainer.best
    assert trainer.best_iteration == 3
    trainer.save(tmp_path / "run.pt")
    again = Trainer.load(tmp_path / "run.pt")
    assert again.best_iteration == 3
    assert again.best == trainer.best
    assert all(torch.equal(value, again.best_weights[name]) for name, value in best.items())


def test_a_run_that_is_cut_short_keeps_its_plan_of_the_learning_rate() -> None:
    plan = TrainConfig(course="fixed", warm_start=False, iterations=4, replicas=2, rows=6, stop_after=2)
    trainer = Trainer(plan)
    trainer.base = SMALL
    trainer.validate = lambda: 1.0  # type: ignore[method-assign]  # two published settings would take a minute
    seen: list[TrainingProgress] = []
    train(trainer, seen.append)
    assert [one.iteration for one in seen] == [1, 2]
    rates = [group["lr"] for group in trainer.optimiser.param_groups]
    assert rates == [pytest.approx(plan.rate * (1.0 - 0.9 * 1 / 4))]


def test_entropy_is_worth_less_and_less() -> None:
    plan = TrainConfig(course="fixed", warm_start=False, iterations=4, replicas=2, rows=6)
    worth = [plan.ppo_at(iteration).entropy for iteration in range(5)]
    assert worth == pytest.approx([plan.ppo.entropy * share for share in (1.0, 0.75, 0.5, 0.25, 0.0)])
    assert msgspec.structs.replace(plan.ppo_at(3), entropy=plan.ppo.entropy) == plan.ppo
    ends = []
    for entropy in (0.0, 100.0):  # in the first half it is worth a lot, and the network becomes indifferent
        trainer = Trainer(msgspec.structs.replace(plan, ppo=PpoConfig(entropy=entropy)))
        trainer.base = SMALL
        ends.append([trainer.step()[2] for _ in range(2)][1])
    assert ends[1] > ends[0]
