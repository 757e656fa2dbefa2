"""Bugs planted into the machines or their shell, one at a time: the seeds of the CI run must expose each.

A bug counts as exposed when a seed of the range breaks one of the promises named for it, and the same seed
without the bug breaks none. Seeds known to do so are tried first, so that the test is quick; when the
machines change and they no longer do, the rest of the range is searched, and the test still decides rightly,
only slower.

What each bug looks like from outside, and how far the search from seed 0 went for three seeds that show it:

=========================================  ======================================================  ========
ack before journal                         an acknowledged job, or what a peer counts on, is gone  0 to 7
double release                             a node is given twice: over-commit                      0 to 6
no de-duplication of claims                a task is started twice                                 0 to 6
lease counted from receipt                 a node runs on when its tasks were given away           0 to 5
stale attempt accepted                     a task is settled by an attempt that did not end so     0 to 32
gives up after five denials                an acknowledged task never ends                         0 to 96
news overwrites pending claims             the view is no longer confirmed less pending            0 to 5
late refusal overrides a live grant        a task is placed again while it runs                    0 to 32
adopted estates are never closed           they pile up at wardens and brokers                     0 to 8
closed estates are not fenced              a late registration brings one back                     0 to 157
the adopter is forgotten                   a door does not know who speaks for a job               0 to 11
doors point back                           two doors point at each other                           0 to 8
an older past is not noticed               an acknowledged task never ends                         0 to 17
what was taken is not compared             room stays held, or a task never ends                   0 to 98
newcomers are used at once                 a takeover does not know of them: a task runs twice     one: 118
mail for the retired is kept               it is repeated for ever                                 0 to 28
claims at the retired are waited for       they are never answered                                 one: 16
a broker retires with its jobs             they never end, or a client hears nothing               two: 259
lost tasks start again                     one that must not run twice does                        0 to 4
what was taken back starts again           the same: it had begun, and that was not told yet       0 to 238
groups that are queued are not told        readers believe that they are blocked                   0 to 3
refusals are not told                      readers believe that the tasks are placed               1 to 3
what wardens have is not told              readers of a taken job know no attempts                 5 to 8
starts of the past are told                readers see a task run that waits                       27 to 49
outdated copies are not told               readers keep them                                       0 to 6
=========================================  ======================================================  ========
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from hanse.sim.chaos import SeedResult, run_seed
from hanse.sim.job_history_check import PROMISE as HISTORY
from hanse.sim.league import LeagueFactories
from hanse.sim.shipped_league import shipped_factories
from tests.sim.planted_bugs.failover import (
    adopter_forgotten,
    never_closed,
    not_fenced,
    past_not_compared,
    points_back,
    received_not_compared,
)
from tests.sim.planted_bugs.history import (
    drops_untold,
    old_starts_told,
    refusals_untold,
    resumed_untold,
    unblocked_untold,
)
from tests.sim.planted_bugs.membership import (
    claims_at_the_retired,
    mail_for_the_retired,
    newcomers_at_once,
    retires_with_jobs,
)
from tests.sim.planted_bugs.placing import (
    double_release,
    gives_up,
    late_refusal,
    lost_start_again,
    news_overwrites_pending,
    no_deduplication,
    stale_attempt,
    taken_back_start_again,
)
from tests.sim.planted_bugs.shells import (
    ack_before_journal,
    lease_from_receipt,
    old_orders,
    watchdog_hangs_too,
)

CI_SEEDS = range(500)
"""The range that ``hanse chaos --seeds 500`` runs."""
Planter = Callable[[pytest.MonkeyPatch, LeagueFactories], LeagueFactories]


class Planted(NamedTuple):
    """A bug, the promises that it may break, and seeds that are known to show it."""

    plant: Planter
    promises: tuple[str, ...]
    seeds: tuple[int, ...]


DOORS = "brokers route to the owner"
ONE_ATTEMPT = "at most one live attempt"
ONE_END = "at most one effective completion"
OVER = "settled means over"
TERMINAL = "every acknowledged task terminal"
REPLAY = "ledger equals journal replay"
LEAKS = "no lease leaks"
ONE_NUMBER = "one job, one number"
OWN_RULES = "machines keep their own rules"
LEFT_OPEN = "no shard is left open"
OWN_PAST = "a member's own history is accepted"
ANSWERED = "every submission answered"
ONCE = "no second start after a loss"

PLANTED = {
    "ack before journal": Planted(
        ack_before_journal, (TERMINAL, ONE_ATTEMPT, ONE_END, OVER, LEAKS, ONE_NUMBER, OWN_PAST), (5, 6, 7)
    ),
    "double release": Planted(double_release, ("no over-commit",), (1, 3, 6)),
    "no de-duplication of claims": Planted(no_deduplication, (ONE_ATTEMPT, OVER), (0, 4, 6)),
    "lease counted from receipt": Planted(lease_from_receipt, (ONE_ATTEMPT, OVER), (2, 4, 5)),
    "stale attempt accepted": Planted(stale_attempt, (ONE_ATTEMPT, ONE_END, OVER), (8, 30, 32)),
    "gives up after five denials": Planted(gives_up, (TERMINAL,), (6, 62, 96)),
    "news overwrites pending claims": Planted(news_overwrites_pending, (REPLAY, OWN_RULES), (0, 4, 5)),
    "late refusal overrides a live grant": Planted(late_refusal, (ONE_ATTEMPT, ONE_END, OVER), (6, 27, 32)),
    "adopted estates are never closed": Planted(never_closed, (LEFT_OPEN,), (5, 7, 8)),
    "the watchdog hangs with the output": Planted(watchdog_hangs_too, (ONE_ATTEMPT, OVER), (86, 161, 264)),
    "old orders are carried out": Planted(old_orders, (ONE_ATTEMPT, OVER), (4, 76, 186)),
    "closed estates are not fenced": Planted(not_fenced, (LEFT_OPEN, ONE_ATTEMPT, OVER), (8, 68, 157)),
    "the adopter is forgotten": Planted(adopter_forgotten, (DOORS,), (7, 8, 11)),
    "doors point back": Planted(points_back, (DOORS,), (5, 7, 8)),
    "an older past is not noticed": Planted(
        past_not_compared, (TERMINAL, LEAKS, ONE_NUMBER, ONE_ATTEMPT, OVER), (4, 6, 17)
    ),
    "what was taken is not compared": Planted(received_not_compared, (TERMINAL, LEAKS), (20, 62, 98)),
    "newcomers are used at once": Planted(newcomers_at_once, (ONE_ATTEMPT, OVER, ONE_END), (118,)),
    "mail for the retired is kept": Planted(mail_for_the_retired, (LEAKS,), (16, 23, 28)),
    "claims at the retired are waited for": Planted(claims_at_the_retired, (LEAKS, TERMINAL), (16,)),
    "a broker retires with its jobs": Planted(retires_with_jobs, (TERMINAL, LEAKS, ANSWERED), (220, 259)),
    "lost tasks start again": Planted(lost_start_again, (ONCE,), (1, 2, 4)),
    "what was taken back starts again": Planted(taken_back_start_again, (ONCE,), (134, 219, 238)),
    "groups that are queued are not told": Planted(unblocked_untold, (HISTORY,), (0, 2, 3)),
    "refusals are not told": Planted(refusals_untold, (HISTORY,), (1, 2, 3)),
    "what wardens have is not told": Planted(resumed_untold, (HISTORY,), (5, 7, 8)),
    "starts of the past are told": Planted(old_starts_told, (HISTORY,), (27, 29, 49)),
    "outdated copies are not told": Planted(drops_untold, (HISTORY,), (0, 5, 6)),
}


def in_order(known: tuple[int, ...]) -> Iterator[int]:
    """The known seeds, then the rest of the CI run's."""
    assert all(seed in CI_SEEDS for seed in known)
    yield from known
    yield from (seed for seed in CI_SEEDS if seed not in known)


def run_with(bug: Planted, seed: int) -> SeedResult:
    """A seed's result with the bug in place."""
    with pytest.MonkeyPatch.context() as patch:
        return run_seed(seed, bug.plant(patch, shipped_factories()))


@pytest.mark.parametrize("name", PLANTED)
def test_the_seeds_of_the_ci_run_expose_it(name: str) -> None:
    bug = PLANTED[name]
    for seed in in_order(bug.seeds):
        finding = run_with(bug, seed).finding
        broken = finding is not None and finding.promise in bug.promises
        if broken and run_seed(seed, shipped_factories()).finding is None:
            return
    pytest.fail(f"no seed of {CI_SEEDS} exposes: {name}")
