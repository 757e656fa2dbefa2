"""Faults of a soak, drawn from its seed: what is killed, halted, filled, drained or changed.

A fault has a beginning and an end. Between them others may begin, but not at the same member.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.live.harness import Door, LiveLeague

from hanse.league.file import league_to_text, load
from hanse.registry import QUEUE_ORDERS
from hanse.security.identity import Role
from tools.soak.setting import BROKERS, CLUSTERS, NODES, RUNNER, Setting

MEMBERS = (*BROKERS, *CLUSTERS, RUNNER)
HELD_MAX = 2
"""Faults that have begun and not ended, at most."""
DOOR_SECONDS = 10.0
HELP_TIMES_MAX = 60
"""How often what ends a fault is tried."""
WEIGHTS = {
    "kill": 6, "launcher": 2, "supervisor": 3, "watchdog": 2, "kill all": 1, "halt": 5, "restart": 3,
    "rolling restart": 1, "disk": 3, "league file": 1, "drain": 2,
    "halt launcher": 2, "halt supervisor": 3, "halt watchdog": 2,
}  # fmt: skip
ALONE = ("kill all", "rolling restart", "league file")
"""These touch all members: they wait until no other fault is held."""

HELPER = "a helper"
"""Whose fault it is that a launcher, supervisor or watchdog is halted. Meanwhile no other of them is touched:
nobody ends a task whose supervisor is killed or halted while its watchdog is halted (ADR 0029)."""

Ending = Callable[[], None]


class Held:
    """A fault that has begun: when it ends, how, and whose it is."""

    def __init__(self, due: float, member: str, end: Ending) -> None:
        self.due, self.member, self.end = due, member, end


class Faults(threading.Thread):
    """Whoever does it; ``done`` ends it, and everything is repaired then."""

    def __init__(self, seed: int, setting: Setting, pause: float) -> None:
        super().__init__(name="faults")
        self._choose = random.Random(f"{seed}/faults")
        self._live: LiveLeague = setting.live
        self._disks = setting.disks
        self._pause = pause
        self._held: list[Held] = []
        self.done = threading.Event()
        self.counts: Counter[str] = Counter()
        self.log: list[tuple[int, str]] = []
        """When (nanoseconds since the machine's start), and what."""
        self.failures: list[str] = []
        """What must not happen: members that end by themselves, or do not start."""
        kinds = [kind for kind in WEIGHTS if kind != "disk" or self._disks]
        self._kinds = [kind for kind in kinds for _ in range(WEIGHTS[kind])]
        self._methods: dict[str, Callable[[], str]] = {
            "kill": self._kill, "kill all": self._kill_all, "halt": self._halt, "restart": self._restart,
            "rolling restart": self._rolling, "disk": self._fill, "league file": self._change,
            "drain": self._drain,
        }  # fmt: skip

    def run(self) -> None:
        """Strike until the end; then repair."""
        try:
            strike_at = time.monotonic() + self._choose.expovariate(1 / self._pause)
            while not self.done.wait(0.1):
                self._end_due(time.monotonic())
                self._look()
                if time.monotonic() >= strike_at and not self.failures:
                    self._strike()
                    strike_at = time.monotonic() + self._choose.expovariate(1 / self._pause)
        except Exception as error:  # noqa: BLE001  told as a failure of the soak, which must not go on blind
            self.failures.append(f"the faults stopped: {error!r}")
        self._repair()

    def _repair(self) -> None:
        try:
            self._end_due(float("inf"))
            self._live.start()
        except (AssertionError, OSError) as error:
            self.failures.append(f"not repaired: {error}")

    # --- one fault ------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        if len(self._held) >= HELD_MAX:
            return
        kind = self._choose.choice([kind for kind in self._kinds if not (kind in ALONE and self._held)])
        told = self._methods[kind]() if kind in self._methods else self._strike_helper(kind)
        if told:
            self.counts[kind] += 1
            self._note(f"{kind}: {told}")

    def _note(self, text: str) -> None:
        self.log.append((time.clock_gettime_ns(time.CLOCK_BOOTTIME), text))

    def _hold(self, seconds: float, member: str, end: Ending) -> None:
        self._held.append(Held(time.monotonic() + seconds, member, end))

    def _end_due(self, now: float) -> None:
        for held in [held for held in self._held if held.due <= now]:
            self._held.remove(held)
            held.end()

    def _look(self) -> None:
        """Nobody ends by themselves."""
        for name, process in list(self._live.processes.items()):
            if process.poll() is not None:
                last = self._live.log(name)[-1_500:]
                self.failures.append(f"{name} ended by itself with {process.returncode}:\n{last}")
                del self._live.processes[name]

    def _free(self, names: tuple[str, ...] = MEMBERS) -> str:
        """Somebody whom no fault holds; empty: nobody."""
        busy = [held.member for held in self._held]
        return self._choose.choice([name for name in names if name not in busy] or [""])

    def _start(self, *names: str) -> None:
        """Start members. A member waits for its launcher, a minute at most: one that is halted goes on first,
        because this thread would not let it go on while it waits."""
        for held in [held for held in self._held if held.member == HELPER]:
            self._held.remove(held)
            held.end()
        try:
            self._live.start(*names)
        except AssertionError as error:
            self.failures.append(f"a member did not start again: {error}")
        self._note(f"started {' '.join(names)}")

    def _kill(self) -> str:
        if not (name := self._free()):
            return ""
        self._live.kill(name)
        seconds = self._choose.choice([0.0, 0.0, 1.0, 5.0, 12.0])
        self._hold(seconds, name, lambda: self._start(name))
        return f"{name} for {seconds} s"

    def _kill_all(self) -> str:
        for process in self._live.processes.values():
            process.send_signal(signal.SIGKILL)
        for name in list(self._live.processes):
            self._live.kill(name)
        time.sleep(self._choose.choice([0.0, 2.0, 10.0]))  # all are away for so long: nothing to await
        self._start(*MEMBERS)
        return "everybody"

    def _restart(self) -> str:
        if name := self._free():
            self._live.kill(name, signal.SIGTERM)
            self._start(name)
        return name

    def _rolling(self) -> str:
        names = self._choose.sample(MEMBERS, len(MEMBERS))
        for name in names:
            self._live.kill(name, signal.SIGTERM)
            self._start(name)
        return " ".join(names)

    def _halt(self) -> str:
        if not (name := self._free()):
            return ""
        process = self._live.processes[name]
        process.send_signal(signal.SIGSTOP)
        seconds = self._choose.uniform(2.0, 15.0)

        def wake() -> None:
            process.send_signal(signal.SIGCONT)
            self._note(f"{name} goes on")

        self._hold(seconds, name, wake)
        return f"{name} for {seconds:.1f} s"

    def _fill(self) -> str:
        if not (name := self._free(tuple(self._disks))):
            return ""
        ballast = self._disks[name] / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        seconds = self._choose.uniform(2.0, 12.0)

        def free() -> None:
            ballast.unlink()
            self._note(f"the disk of {name} has room")

        self._hold(seconds, name, free)
        return f"{name} for {seconds:.1f} s"

    # --- launchers, supervisors, watchdogs ------------------------------------------------------------------

    def _strike_helper(self, kind: str) -> str:
        """Kill a launcher, supervisor or watchdog, or halt it for a while."""
        halts = kind.startswith("halt ")
        pids = helpers(self._live.home.path)[kind.removeprefix("halt ")]
        if not pids or not self._free((HELPER,)):
            return ""
        pid = self._choose.choice(pids)
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:  # it has just ended by itself
            return ""
        if not halts:
            _send(process, signal.SIGKILL)
            os.close(process)
            return str(pid)
        _send(process, signal.SIGSTOP)
        seconds = self._choose.uniform(2.0, 15.0)

        def wake() -> None:
            _send(process, signal.SIGCONT)
            os.close(process)
            self._note(f"{pid} goes on")

        self._hold(seconds, HELPER, wake)
        return f"{pid} for {seconds:.1f} s"

    # --- what operators do ----------------------------------------------------------------------------------

    def _change(self) -> str:
        """Another policy for the league. It is refused while too few brokers are there, rightly so."""
        known = load(self._live.home.league_file)
        order = self._choose.choice([order for order in QUEUE_ORDERS.shipped if order != known.policy.order])
        policy = msgspec.structs.replace(known.policy, order=order)
        text = league_to_text(msgspec.structs.replace(known, policy=policy))
        broker = self._choose.choice(BROKERS)
        status = self._post(Role.BROKER, broker, "/v1/league/file", {"text": text})
        return f"{order} by {broker}: {status}" if status == 200 else ""

    def _drain(self) -> str:
        if not (name := self._free(CLUSTERS)):
            return ""
        whole = self._choose.random() < 0.4
        nodes = [] if whole else [self._choose.randrange(NODES)]
        wish = {"nodes": nodes, "whole": whole}
        if self._post(Role.WARDEN, name, "/v1/drain", {**wish, "drain": True}) != 200:
            return ""

        def undrain() -> None:
            for _ in range(HELP_TIMES_MAX):
                if self._post(Role.WARDEN, name, "/v1/drain", {**wish, "drain": False}) == 200:
                    self._note(f"{name} is open again")
                    return
                time.sleep(1.0)  # it may be starting again; there is nothing to await
            self.failures.append(f"{name} could not be undrained")

        seconds = self._choose.uniform(2.0, 12.0)
        self._hold(seconds, name, undrain)
        return f"{name} {nodes or 'whole'} for {seconds:.1f} s"

    def _post(self, role: Role, name: str, path: str, body: object) -> int:
        door = Door(self._live, role, name, DOOR_SECONDS)
        try:
            return door.raw("POST", path, body)[0]
        except OSError:
            return 0
        finally:
            door.close()


def _send(process: int, number: signal.Signals) -> None:
    """Signal a process by its descriptor, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)


def helpers(home: Path) -> dict[str, list[int]]:
    """Launchers, watchdogs and supervisors of a home that have somebody to look after. A supervisor without a
    child may be a task on the point of becoming another program, and whoever kills a task makes it fail."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text(encoding="utf-8", errors="replace")
            parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
            place, program = str((path / "cwd").readlink()), str((path / "exe").readlink())
        except OSError:
            continue
        if place.startswith(f"{home}/") and program.endswith("_supervisor"):
            names[int(path.name)] = stat[stat.index("(") + 1 : stat.rindex(")")]
    with_child = dict.fromkeys(parents.values())
    found: dict[str, list[int]] = {"launcher": [], "watchdog": [], "supervisor": []}
    for pid, name in sorted(names.items()):
        parent = names.get(parents[pid], "")
        if pid not in with_child:
            continue
        if name == "_watchdog":
            found["watchdog"].append(pid)
        elif parent == "_watchdog":
            found["supervisor"].append(pid)
        elif not parent:
            found["launcher"].append(pid)
    return found
