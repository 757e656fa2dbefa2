"""Published figures for comparison: the authors' own logs and an independent simulator of the same
schedulers.

Job delays in seconds. Each case holds everything that a repetition needs. Traces that are not available (the
full traces, the modified Google trace) are left out.
"""

from typing import Any, Final

import msgspec

from hanse.sim.replay.run_records import SECOND, ReplaySettings

AUTHORS: Final = "authors' logs"
SIMULATOR: Final = "independent simulator"

_DELAYS: Final = ("delay_mean", "delay_p50", "delay_p90", "delay_p99", "delay_p999")
_TABLE: Final = (*_DELAYS, "short_delay_p99", "long_delay_p99", "messages_per_task", "rejects_per_task")


class PublishedCase(msgspec.Struct, frozen=True):
    """One run with published or logged figures."""

    group: str
    policy: str
    trace: str
    settings: ReplaySettings
    figures: dict[str, float]
    source: str = SIMULATOR
    whole_seconds: bool = False
    seeds: int = 5
    """Seeds to average over; a deterministic policy runs once."""
    goals: dict[str, float] = {}
    """Fields with a goal, and the deviation allowed in per cent."""


def _figures(values: tuple[float | None, ...], fields: tuple[str, ...] = _TABLE) -> dict[str, float]:
    return {field: value for field, value in zip(fields, values, strict=False) if value is not None}


class _SimulatorTable(msgspec.Struct, frozen=True):
    """Table of the independent simulator: one trace and size, rows of figures by policy and order."""

    trace: str
    settings: ReplaySettings
    rows: tuple[tuple[str, str, tuple[float | None, ...]], ...]
    seeds: int = 5
    goals: dict[str, float] = {}

    def cases(self) -> list[PublishedCase]:
        """Return a case per row."""
        settings = self.settings
        group = (
            f"{self.trace}, {settings.nodes} nodes, {settings.brokers} brokers, {settings.clusters} clusters"
        )
        found = []
        for policy, order, values in self.rows:
            ordered = msgspec.structs.replace(settings, order=order or "fifo")
            goal = {} if policy in ("eagle", "megha-repaired") else self.goals
            found.append(
                PublishedCase(
                    group, policy, self.trace, ordered, _figures(values), seeds=self.seeds, goals=goal
                )
            )
        return found


def _settings(nodes: int, brokers: int, clusters: int, cutoff: float, **more: Any) -> ReplaySettings:
    cutoff_us = round(cutoff * SECOND)
    return ReplaySettings(nodes=nodes, brokers=brokers, clusters=clusters, short_cutoff_us=cutoff_us, **more)


_FEWEST: Final = "fewest-remaining"
_YAHOO: Final = "YH1_sub.tr.gz"
_GOOGLE: Final = "GOOG_subtrace.tr.gz"
_TABLES: Final = (
    _SimulatorTable(_YAHOO, _settings(4000, 4, 10, 90.5811), (
        ("sparrow", "", (2103, 1730, 4518, 7154, 15337, 7182, 6452, 7.0)),
        ("hawk", "", (332, 173, 894, 1515, 1712, 1491, 1641, 10.552)),
        ("eagle", "", (76.36, 0.0020, 225, 1203, 1640, 761, 1641, 7.850)),
        ("pigeon", "", (51.53, 0.0015, 58.97, 1208, 1593, 207, 1594, 4.0)),
        ("megha", "", (366, 4.85, 1020, 4290, 4997, 4340, 3951, 5.834, 1.1948)),
        ("megha-repaired", _FEWEST, (141, 0.73, 334, 2873, 4676, 2643, 4203, 4.038, 0.1975)),
        ("central", "fifo", (338, 90.52, 1033, 1429, 1498, 1428, 1432)),
        ("central", _FEWEST, (21.50, 0.10, 17.37, 390, 1851, 260, 1862)),
        ("central", "short-first", (53.53, 0.21, 115, 1072, 1502, 277, 1504)),
    )),
    _SimulatorTable(_YAHOO, _settings(5000, 5, 10, 90.5811), (
        ("sparrow", "", (897, 600, 2004, 5074, 13469, 5069, 4700, 7.0)),
        ("hawk", "", (98.49, 15.78, 347, 943, 1245, 928, 1175, 14.230)),
        ("eagle", "", (13.09, 0.0015, 3.59, 377, 1189, 105, 1175, 7.875)),
        ("pigeon", "", (13.13, 0.0015, 1.25, 329, 1032, 193, 1036, 4.0)),
        ("megha", "", (26.24, 0.0015, 28.80, 595, 1080, 543, 791, 3.988, 0.4267)),
        ("megha-repaired", _FEWEST, (15.11, 0.0015, 9.00, 405, 836, 361, 648, 3.654, 0.1564)),
        ("central", "fifo", (66.51, 0.0015, 221, 963, 1069, 953, 988)),
        ("central", _FEWEST, (4.83, 0.0015, 1.54, 117, 661, 71.44, 665)),
        ("central", "short-first", (13.72, 0.0015, 5.76, 322, 1035, 199, 1036)),
    ), seeds=10, goals={"delay_mean": 10, "delay_p99": 10}),
    _SimulatorTable(_YAHOO, _settings(10_000, 4, 25, 90.5811), (
        ("sparrow", "", (53.62, 0.0015, 99.45, 956, 2847, 929, 1014, 7.0)),
        ("hawk", "", (4.24, 0.0015, 0.53, 108, 202, 114, 28.49, 18.354)),
        ("eagle", "", (0.0475, 0.0015, 0.0015, 0.0020, 20.20, 0.0020, 20.29, 7.478)),
        ("pigeon", "", (0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 4.0)),
        ("megha", "", (0.0068, 0.0015, 0.0015, 0.0015, 2.74, 0.0015, 0.0015, 3.047, 0.0010)),
        ("megha-repaired", _FEWEST, (0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 3.285, 0.0)),
        ("central", _FEWEST, (0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 0.0015, 0.0015)),
    )),
    _SimulatorTable(_GOOGLE, _settings(15_000, 5, 10, 1129.532, short_percent=17), (
        ("sparrow", "", (800, 54.40, 1902, 8955, 79219, 8834, 10025, 7.0)),
        ("hawk", "", (126, 1.57, 407, 1194, 3273, 1099, 3270, 13.732)),
        ("eagle", "", (28.11, 0.0015, 6.01, 722, 3313, 253, 3290, 10.043)),
        ("pigeon", "", (38.36, 0.0015, 60.28, 811, 1428, 626, 1452, 4.0)),
        ("megha", "", (30.38, 0.0015, 15.98, 679, 1004, 660, 822, 5.036, 0.9766)),
        ("megha-repaired", _FEWEST, (4.15, 0.0015, 0.0978, 87.31, 767, 87.41, 82.36, 3.743, 0.2124)),
        ("central", "fifo", (54.29, 0.0015, 249, 720, 962, 722, 631)),
        ("central", _FEWEST, (2.30, 0.0015, 0.0667, 30.30, 450, 30.31, 23.84)),
        ("central", "short-first", (36.11, 0.0015, 55.83, 833, 1308, 700, 1347)),
    ), seeds=3),
    _SimulatorTable("synthetic_FB.tr.gz", _settings(5000, 5, 10, 76.5951), (
        ("sparrow", "", (234, 241, 357, 452, 522, 467, 451, 7.0)),
        ("hawk", "", (44.63, 33.17, 104, 221, 300, 250, 201, 11.643)),
        ("eagle", "", (42.35, 5.58, 65.74, 852, 1330, 1245, 325, 6.253)),
        ("pigeon", "", (13.24, 0.0015, 52.31, 124, 142, 27.52, 132, 4.0)),
        ("megha", "", (13.05, 0.0015, 33.54, 209, 328, 211, 194, 4.665, 0.9088)),
        ("megha-repaired", _FEWEST, (7.41, 0.0015, 12.42, 140, 534, 85.54, 172, 3.643, 0.2157)),
        ("central", "fifo", (8.60, 0.0015, 39.66, 92.40, 119, 95.99, 91.02)),
        ("central", _FEWEST, (5.04, 0.0015, 4.18, 101, 574, 69.01, 102)),
        ("central", "short-first", (6.51, 0.0015, 19.57, 94.00, 116, 21.91, 98.95)),
    )),
    _SimulatorTable("NYH_70.tr.gz", _settings(330, 3, 11, 0.905, pigeon_group=33), (
        ("sparrow", "", (9.48, 6.21, 25.73, 32.02, 40.91, 31.86, 33.43, 7.0)),
        ("hawk", "", (5.66, 0.21, 20.41, 28.25, 39.52, 27.32, 37.53, 13.099)),
        ("pigeon", "", (1.50, 0.0387, 2.75, 25.53, 30.99, 3.86, 30.94, 4.0)),
        ("megha", "", (3.82, 0.0547, 12.71, 41.07, 57.37, 40.39, 42.12, 5.007, 0.7752)),
        ("megha-repaired", _FEWEST, (2.75, 0.0087, 4.20, 64.97, 112, 63.95, 74.65, 3.781, 0.0427)),
        ("central", "fifo", (3.93, 0.0015, 14.68, 18.84, 20.43, 18.82, 19.27)),
        ("central", _FEWEST, (1.44, 0.0015, 0.75, 39.29, 97.42, 38.86, 55.17)),
        ("central", "short-first", (0.97, 0.0015, 1.42, 19.66, 23.52, 3.46, 23.39)),
    )),
)  # fmt: skip


def _logged_cases() -> list[PublishedCase]:
    """Return the authors' logs: Google sub-trace at 10,000 and 50,000 nodes, durations in whole seconds."""
    crowded = _settings(10_000, 4, 25, 1129.532)
    alone = msgspec.structs.replace(crowded, brokers=1, clusters=1)
    roomy = msgspec.structs.replace(crowded, nodes=50_000)
    name = f"{_GOOGLE}, 10000 nodes, whole seconds"
    wide = f"{_GOOGLE}, 50000 nodes, whole seconds"
    goals = {"delay_mean": 3.0, "delay_p50": 3.0, "delay_p90": 3.0, "delay_p99": 3.0}
    one = (29.1, 0.034, 7.99, 417, 4114)
    slow = msgspec.structs.replace(crowded, heartbeat_us=30 * SECOND)
    slow_alone = msgspec.structs.replace(alone, heartbeat_us=30 * SECOND)
    logged_one = {**_figures(one, _DELAYS), "rejects_per_task": 1.25}
    logged = {**_figures((67.7, 2.03, 42.7, 1473, 9068), _DELAYS), "rejects_per_task": 1.03}
    near = {"delay_mean": 20.0, "delay_p99": 20.0}
    floor = _figures((0.0015,) * 5, _DELAYS)
    kept = msgspec.structs.replace(crowded, short_percent=17)
    sparrow = _figures((4524, 3877, 6715, 14198, 99955), _DELAYS)
    sparrow_wide = _figures((56.5, 0.0015, 0.0015, 792, 7042), _DELAYS)
    as_given = f"{_GOOGLE}, 10000 nodes, durations as given"
    repaired = {"delay_mean": 96.7, "delay_p99": 2153.0}
    return [
        PublishedCase(name, "sparrow", _GOOGLE, crowded, sparrow, AUTHORS, True, 20, goals),
        PublishedCase(name, "independent", _GOOGLE, alone, _figures(one, _DELAYS), AUTHORS, True, 1, near),
        PublishedCase(name, "central", _GOOGLE, crowded, _figures(one, _DELAYS), AUTHORS, True, 1, near),
        PublishedCase(name, "pigeon", _GOOGLE, kept, {"delay_mean": 725.0}, SIMULATOR, True, 3),
        PublishedCase(name, "eagle", _GOOGLE, kept, {"delay_mean": 913.0}, SIMULATOR, True, 3),
        PublishedCase(name, "megha", _GOOGLE, crowded, {"delay_mean": 2074.0}, SIMULATOR, True, 3),
        PublishedCase(name, "megha-repaired", _GOOGLE, crowded, repaired, SIMULATOR, True, 3),
        PublishedCase(
            f"{name}, one broker", "megha-logged", _GOOGLE, slow_alone, logged_one, AUTHORS, True, 5, near
        ),
        PublishedCase(f"{name}, heartbeat 30 s", "megha-logged", _GOOGLE, slow, logged, AUTHORS, True, 5),
        PublishedCase(as_given, "central", _GOOGLE, crowded, _figures(one, _DELAYS), AUTHORS, False, 1),
        PublishedCase(wide, "sparrow", _GOOGLE, roomy, sparrow_wide, AUTHORS, True, 10),
        PublishedCase(wide, "megha", _GOOGLE, roomy, floor, AUTHORS, True, 1),
    ]


def _ablation_cases() -> list[PublishedCase]:
    """Return the sensitivity studies on Yahoo at 5,000 nodes, and the sub-second trace."""
    base = _settings(5000, 5, 10, 90.5811)
    found = []
    for brokers, rejects, repaired in ((1, 0.0, 5.0), (2, 0.165, 8.8), (5, 0.427, 15.1), (10, 0.763, 20.6)):
        settings = msgspec.structs.replace(base, brokers=brokers)
        group = f"{_YAHOO}, 5000 nodes: {brokers} brokers"
        found.append(PublishedCase(group, "megha", _YAHOO, settings, {"rejects_per_task": rejects}, seeds=3))
        found.append(
            PublishedCase(group, "megha-repaired", _YAHOO, settings, {"delay_mean": repaired}, seeds=3)
        )
    for seconds, mean in ((0.1, 26.6), (1.0, 26.8), (30.0, 27.4)):
        settings = msgspec.structs.replace(base, heartbeat_us=round(seconds * SECOND))
        group = f"{_YAHOO}, 5000 nodes: heartbeat {seconds:g} s"
        found.append(PublishedCase(group, "megha", _YAHOO, settings, {"delay_mean": mean}, seeds=3))
    for milliseconds, mean in ((5, 14.3), (50, 11.3)):
        settings = msgspec.structs.replace(base, delay_us=milliseconds * 1000)
        group = f"{_YAHOO}, 5000 nodes: delay {milliseconds} ms"
        found.append(PublishedCase(group, "megha-repaired", _YAHOO, settings, {"delay_mean": mean}, seeds=3))
    quick = _settings(105, 3, 7, 0.905)  # not stated: chosen by fit, see docs/results/validation.md
    for seconds, mean, p99 in ((5.0, 0.26, 5.75), (0.1, 0.03, 0.43)):
        settings = msgspec.structs.replace(quick, heartbeat_us=round(seconds * SECOND))
        group = f"EXP_90.tr.gz, 105 nodes: heartbeat {seconds:g} s"
        figures = {"delay_mean": mean, "delay_p99": p99}
        found.append(PublishedCase(group, "megha-repaired", "EXP_90.tr.gz", settings, figures, seeds=10))
    group = "EXP_90.tr.gz, 105 nodes"
    found.append(
        PublishedCase(group, "central", "EXP_90.tr.gz", quick, {"delay_mean": 0.02, "delay_p99": 0.32})
    )
    return found


def cases() -> list[PublishedCase]:
    """Return all cases, in the order of the table."""
    return [*_logged_cases(), *(case for table in _TABLES for case in table.cases()), *_ablation_cases()]
