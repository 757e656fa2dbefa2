"""Training run: warm start, policy gradient, validation, checkpoints. Resumable, and a function of its seed.

Each iteration draws everything from (seed, iteration), so a run that was interrupted and resumed from a
checkpoint gives the same weights as one that was not.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Literal

import msgspec
import numpy as np
import torch

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env.policy_interface import Floats
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.players.play import play, priced_player
from hanse.learning.edge.training import policy_gradient
from hanse.learning.edge.training.domain_randomisation import (
    Curriculum,
    make_iteration,
    rule_of,
    validation_names,
    validation_streams,
)
from hanse.learning.edge.training.greedy_player import torch_player
from hanse.learning.edge.training.imitation import collect_rule_samples, imitate
from hanse.learning.edge.training.net import NO_LEAN, Critic, EdgeNet, NetConfig
from hanse.learning.edge.training.rollout import collect


class TrainConfig(msgspec.Struct, frozen=True):
    """Training recipe; goes into the exported file."""

    setting: str = "syn3"
    seed: int = 1
    method: Literal["crn", "mappo"] = "crn"
    course: Curriculum = "randomised"
    warm_start: bool = True
    """True: imitate the rule first."""
    warm_lessons: int = 8
    warm_epochs: int = 6
    iterations: int = 120
    stop_after: int = 0
    """Iterations after which the run ends, though its learning rate is planned for all; 0: none."""
    cpu_seconds_max: float = 900.0
    """CPU time after which the run stops, whatever the iterations; the network so far is used."""
    base_share: tuple[float, float] = (0.5, 0.9)
    """Share of iterations on the setting trained for, at the start and, on a line, at the end.

    The others come first, when most is learned; what is left to gain at the end is small, and needs many.
    """
    replicas: int = 8
    """Episodes per stream."""
    rows: int = 288
    """Episodes times clusters of one iteration."""
    rate: float = 8e-4
    """Learning rate at the start; falls linearly to a tenth over the ``iterations``."""
    average: float = 0.8
    """Weight of the past in the running mean of the weights, per iteration; 0: no mean.

    Validation and export use the mean.
    """
    validate_every: int = 15
    lean_late: bool = False
    """True: only the validated and exported network is biased towards the rule; the learning one is not."""
    net: NetConfig = NetConfig(encoder="none")
    ppo: policy_gradient.PpoConfig = policy_gradient.PpoConfig()

    @property
    def end_iteration(self) -> int:
        """Iterations of the whole run."""
        return min(self.iterations, self.stop_after or self.iterations)

    def rate_at(self, iteration: int) -> float:
        """Return the learning rate of an iteration."""
        return self.rate * (1.0 - 0.9 * iteration / self.iterations)

    def ppo_at(self, iteration: int) -> policy_gradient.PpoConfig:
        """Return the constants of an iteration's update: the weight of entropy falls linearly to zero.

        Validation uses the likeliest choice; towards the end there is no use in trying others.
        """
        worth = self.ppo.entropy * (1.0 - iteration / self.iterations)
        return msgspec.structs.replace(self.ppo, entropy=worth)

    def base_share_at(self, iteration: int) -> float:
        """Return the share of the setting that is trained for among the iterations at this point."""
        first, last = self.base_share
        return first + (last - first) * iteration / self.iterations


class TrainingProgress(msgspec.Struct, frozen=True):
    """Progress of a training run after an iteration."""

    iteration: int
    iterations: int
    completion: float
    """Mean completion of the iteration's sampled episodes, in steps."""
    conflicts: float
    entropy: float
    sub_steps: int
    cpu_seconds: float
    seconds_left: float
    against_rule: float
    """Latest validation: mean completion over the rule's on the same streams; nan before the first."""
    best: float


def named_setting(name: str) -> Setting:
    """Return a published setting by name."""
    makers: dict[str, Callable[[], Setting]] = {
        "syn3": settings.syn3,
        "hetero6": settings.hetero6,
        "single3": settings.single3,
        "single6": settings.single6,
        "order3": settings.order3,
    }
    return makers[name]()


class Trainer:
    """State of a run between iterations."""

    def __init__(self, config: TrainConfig) -> None:
        """Make networks from the seed."""
        torch.set_num_threads(1)  # sums in a fixed order: the same seed gives the same weights
        torch.manual_seed(config.seed)
        self.config = config
        self.base = named_setting(config.setting)
        learning = msgspec.structs.replace(config.net, lean=NO_LEAN) if config.lean_late else config.net
        self.net = EdgeNet(learning)
        self.averaged = EdgeNet(config.net)
        self._restart_average()
        self.critic = Critic(config.net.hidden)
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=config.rate, fused=True)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.iteration = 0
        self.cpu_seconds = 0.0
        self.sub_steps = 0
        self.against_rule = float("nan")
        self.best = float("inf")
        self.best_iteration = 0
        self.best_weights: dict[str, torch.Tensor] = {}
        self.validated_at = -1
        """Iteration of the latest validation."""
        self.ratios: dict[str, float] = {}
        """Latest validation, by setting."""
        self._validation_cache: dict[str, tuple[Setting, list[int], Floats]] = {}

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        keep: dict[str, Any] = {
            "config": msgspec.json.encode(self.config),
            "net": self.net.state_dict(),
            "averaged": self.averaged.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "critic_optimiser": self.critic_optimiser.state_dict(),
            "iteration": self.iteration,
            "cpu_seconds": self.cpu_seconds,
            "sub_steps": self.sub_steps,
            "against_rule": self.against_rule,
            "best": self.best,
            "best_iteration": self.best_iteration,
            "best_weights": self.best_weights,
        }
        part = path.with_suffix(".part")
        torch.save(keep, part)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Trainer":
        """Return a trainer that continues from a checkpoint."""
        kept = torch.load(path, weights_only=True)
        trainer = cls(msgspec.json.decode(kept["config"], type=TrainConfig))
        trainer.net.load_state_dict(kept["net"])
        trainer.averaged.load_state_dict(kept["averaged"])
        trainer.critic.load_state_dict(kept["critic"])
        trainer.optimiser.load_state_dict(kept["optimiser"])
        trainer.critic_optimiser.load_state_dict(kept["critic_optimiser"])
        for name in ("iteration", "cpu_seconds", "sub_steps", "against_rule"):
            setattr(trainer, name, kept[name])
        for name in ("best", "best_iteration", "best_weights"):
            setattr(trainer, name, kept[name])
        return trainer

    def warm_start(self) -> float:
        """Imitate the rule on the curriculum's own settings; return the last loss."""
        config, loss = self.config, 0.0
        optimiser = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        sample_sets = []
        for number in range(config.warm_lessons):
            share = (number + 0.5) / config.warm_lessons  # every sort of setting, in proportion
            first = make_iteration(
                self.base, config.course, config.seed, 90_000 + number, 1, config.rows, share
            )
            rows = np.arange(min(len(first.streams.seed), 48))
            sample_sets.append(
                collect_rule_samples(self.net, first.setting, first.streams.take(rows), first.rule)
            )
        for epoch in range(config.warm_epochs):
            for group in optimiser.param_groups:
                group["lr"] = 2e-3 * (1.0 - 0.9 * epoch / config.warm_epochs)
            for number, samples in enumerate(sample_sets):
                generator = torch.Generator().manual_seed(config.seed * 1_000 + epoch * 10 + number)
                loss = imitate(self.net, optimiser, samples, 1, generator)
        self._restart_average()
        return loss

    def _restart_average(self) -> None:
        """Set the mean of the weights to the weights, with the bias of the exported network."""
        self.averaged.load_state_dict(self.net.state_dict())
        self.averaged.lean.copy_(torch.tensor(self.config.net.lean))

    def _update_average(self) -> None:
        """Move the mean of the weights towards those of this iteration."""
        keep = self.config.average
        with torch.no_grad():
            for mean, now in zip(self.averaged.parameters(), self.net.parameters(), strict=True):
                mean.mul_(keep).add_(now, alpha=1.0 - keep)

    def step(self) -> tuple[float, float, float]:
        """Run one iteration; return the mean completion, the share of conflicts and the entropy."""
        config, ppo = self.config, self.config.ppo_at(self.iteration)
        iteration = make_iteration(
            self.base,
            config.course,
            config.seed,
            self.iteration,
            config.replicas,
            config.rows,
            base_share=config.base_share_at(self.iteration),
        )
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + self.iteration)
        for group in self.optimiser.param_groups:
            group["lr"] = config.rate_at(self.iteration)
        buffer = collect(self.net, iteration.setting, iteration.streams, iteration.rule, generator)
        if config.method == "crn":
            advantage = policy_gradient.group_advantage(buffer, config.replicas, ppo)
        else:
            with torch.no_grad():
                value = self.critic(buffer.batch).numpy().astype(np.float64)
            advantage, target = policy_gradient.critic_advantage(buffer, value, ppo)
            policy_gradient.update_critic(self.critic, self.critic_optimiser, buffer.batch, target, generator)
        info = policy_gradient.update_policy(self.net, self.optimiser, buffer, advantage, ppo, generator)
        self._update_average()
        self.iteration += 1
        self.sub_steps += buffer.sub_steps
        return float(buffer.completion.mean()), buffer.conflicts, info["entropy"]

    def validate(self) -> float:
        """Return the worst ratio to the rule over the validation settings; keep the best weights."""
        worst = 0.0
        for name in validation_names(self.config.course):
            if name not in self._validation_cache:
                setting, seeds = validation_streams(name)
                self._validation_cache[name] = (
                    setting,
                    seeds,
                    play(setting, make_streams(setting, seeds), priced_player(setting)).mean,
                )
            setting, seeds, rule_means = self._validation_cache[name]
            player = torch_player(self.averaged, rule_of(setting))
            means = play(setting, make_streams(setting, seeds), player).mean
            weight = 1.0 if name == self.config.setting else 0.0
            ratio = float(means.mean() / rule_means.mean())
            self.ratios[name] = ratio
            # the trained-for setting decides; another may be up to 1 % worse than the rule before it counts
            worst = max(worst, ratio if weight else ratio - 0.01)
        self.against_rule = worst
        self.validated_at = self.iteration
        if worst < self.best:
            self.best = worst
            self.best_iteration = self.iteration
            self.best_weights = {name: value.clone() for name, value in self.averaged.state_dict().items()}
        return worst


def train(
    trainer: Trainer, report: Callable[[TrainingProgress], None], checkpoint: Path | None = None
) -> EdgeNet:
    """Run to the end (from the trainer's iteration on) and return the network with the best validation."""
    config = trainer.config
    began, from_iteration = monotonic(), trainer.iteration
    clock = process_time()
    if trainer.iteration == 0:
        if config.warm_start:
            trainer.warm_start()
        trainer.validate()
    while trainer.iteration < config.end_iteration and trainer.cpu_seconds < config.cpu_seconds_max:
        completion, conflicts, entropy = trainer.step()
        if trainer.iteration % config.validate_every == 0:
            trainer.validate()
        trainer.cpu_seconds += process_time() - clock
        clock = process_time()
        if checkpoint is not None and trainer.iteration % config.validate_every == 0:
            trainer.save(checkpoint)
        done = trainer.iteration - from_iteration
        pace = (monotonic() - began) / done
        report(
            TrainingProgress(
                iteration=trainer.iteration,
                iterations=config.end_iteration,
                completion=completion,
                conflicts=conflicts,
                entropy=entropy,
                sub_steps=trainer.sub_steps,
                cpu_seconds=trainer.cpu_seconds,
                seconds_left=pace * (config.end_iteration - trainer.iteration),
                against_rule=trainer.against_rule,
                best=trainer.best,
            )
        )
    if trainer.validated_at != trainer.iteration:
        trainer.validate()
    if trainer.best_weights:
        trainer.averaged.load_state_dict(trainer.best_weights)
    return trainer.averaged
