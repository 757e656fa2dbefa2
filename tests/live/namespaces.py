"""Hosts of their own for the members of a league: network namespaces on one switch, whose links can be cut
one way, delayed and narrowed.

Each host is a namespace with an Ethernet device whose other end is a file that the switch, a thread of this
process, holds. So everything that hosts say to each other passes through a few lines of Python, no kernel
module is needed, and the root namespace gets no device and no address. Who has which hardware address is
written into every host: nobody asks, so a cut concerns what is said and nothing else.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import secrets
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

HOSTS_MAX = 200
FRAME_BYTES_MAX = 2_048
FRAMES_A_TURN_MAX = 64
"""Frames taken from one host before the others have their turn."""
HEAL_TURNS_MAX = 64
"""Turns of each host before a network is healed."""
HEAL_SECONDS_MAX = 60.0
WAITING_FRAMES_MAX = 20_000
"""Frames on their way; further ones are lost, as in any network."""
QUEUE_SECONDS_MAX = 2.0
"""What would wait longer than this for a narrow link is lost."""

_DIRECTORY = Path("/run/netns")
_TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x4004_54CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)

Pair = tuple[str, str]
"""From whom, to whom."""


class Way(NamedTuple):
    """How frames travel from one host to another."""

    delay_seconds: float = 0.0
    bits_per_second: float = 0.0
    """0: as many as there are."""


def unavailable() -> str:
    """Why hosts cannot be made on this machine; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    for program in ("ip", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"there is no {program} on this machine"
    if not _TUN.exists():
        return f"there is no {_TUN} on this machine"
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        return "this root may not make network namespaces"
    return ""


class Network:
    """Hosts and the switch between them. Made by ``network``."""

    def __init__(self, hosts: Sequence[str], held: ExitStack) -> None:
        assert 0 < len(hosts) <= HOSTS_MAX, hosts
        self.hosts = tuple(hosts)
        self.carried: Counter[Pair] = Counter()
        """Frames that arrived."""
        self.lost: Counter[Pair] = Counter()
        """Frames that did not: cut off, or too many."""
        self.name = f"hanse-test-{secrets.token_hex(4)}"
        """The beginning of every namespace's name."""
        self._cuts: dict[Pair, bool] = {}
        self._ways: dict[Pair, Way] = {}
        self._free_at: dict[Pair, float] = {}
        """When a narrow link has sent all that it was given."""
        self._waiting: list[tuple[float, int, Pair, bytes]] = []
        self._count = 0
        self._devices: dict[str, int] = {}
        for host in self.hosts:
            _ip("netns", "add", self._name(host))
            held.callback(_ip, "netns", "delete", self._name(host))
            self._devices[host] = self._device(host)
            held.callback(os.close, self._devices[host])
        for host in self.hosts:
            self._set_up(host)
        self._by_hardware = {_hardware(number).replace(":", ""): host for number, host in self._numbered()}
        self._healing: deque[threading.Event] = deque()
        """Set when everything arrives again, one for each caller that waits for it."""
        self._stopping = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        held.callback(os.close, self._bell)
        self._thread = threading.Thread(target=self._carry, name="switch")
        self._thread.start()
        held.callback(self._stop)

    # --- hosts ---------------------------------------------------------------------------------------------

    def address(self, host: str) -> str:
        """A host's address."""
        return _address(self.hosts.index(host) + 1)

    def prefix(self, host: str) -> list[str]:
        """The beginning of a command that runs on a host. Unlike ``ip netns exec`` it leaves /sys, and so the
        control groups in it, as they are."""
        return ["nsenter", f"--net={_DIRECTORY / self._name(host)}", "--"]

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Put the calling thread on a host: what it connects, it connects from there."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._enter(host)
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(before)

    def _numbered(self) -> Iterator[tuple[int, str]]:
        return ((number, host) for number, host in enumerate(self.hosts, 1))

    def _name(self, host: str) -> str:
        return f"{self.name}-{host}"

    def _enter(self, host: str) -> None:
        descriptor = os.open(_DIRECTORY / self._name(host), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(descriptor)
        finally:
            os.close(descriptor)

    def _device(self, host: str) -> int:
        """A host's Ethernet device, as the file that is its other end."""
        with self.inside(host):
            descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _TAP_WITHOUT_HEADER))
        return descriptor

    def _set_up(self, host: str) -> None:
        number = self.hosts.index(host) + 1
        lines = [
            f"link set eth0 address {_hardware(number)}",
            f"address add {_address(number)}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            *(
                f"neigh replace {_address(other)} lladdr {_hardware(other)} dev eth0 nud permanent"
                for other, _ in self._numbered()
                if other != number
            ),
        ]
        _ip("-netns", self._name(host), "-batch", "-", said="\n".join(lines))

    # --- faults --------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """From now on nothing that one host says arrives at the other."""
        self._cuts[(source, target)] = True

    def part(self, one: str, *others: str) -> None:
        """Cut a host off from others, both ways."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def slow(self, one: str, other: str, way: Way) -> None:
        """Make a link slow, both ways."""
        self._ways[(one, other)] = self._ways[(other, one)] = way

    def heal(self) -> None:
        """Everything that is said from now on arrives, at once. What was said before meets the cut: a switch
        that is late on a busy machine must not carry it."""
        healed = threading.Event()
        self._healing.append(healed)
        os.eventfd_write(self._bell, 1)
        assert healed.wait(HEAL_SECONDS_MAX), "the switch does not answer"

    # --- the switch ----------------------------------------------------------------------------------------

    def _carry(self) -> None:
        """The thread of the switch."""
        with select.epoll() as poll:
            by_device = {descriptor: host for host, descriptor in self._devices.items()}
            for descriptor in (*by_device, self._bell):
                poll.register(descriptor, select.EPOLLIN)
            while True:
                waiting = self._waiting
                pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
                for descriptor, _ in poll.poll(pause):
                    if descriptor != self._bell:
                        self._take(by_device[descriptor], descriptor)
                    elif self._is_over():
                        return
                now = time.monotonic()
                while waiting and waiting[0][0] <= now:
                    _, _, pair, frame = heapq.heappop(waiting)
                    self._hand_over(pair, frame)

    def _is_over(self) -> bool:
        """Do what the bell was rung for: heal, or end."""
        os.eventfd_read(self._bell)
        while self._healing:
            for host, device in self._devices.items():
                for _ in range(HEAL_TURNS_MAX):
                    if not self._take(host, device):
                        break
            self._cuts.clear()
            self._ways.clear()
            self._healing.popleft().set()
        return self._stopping

    def _take(self, source: str, descriptor: int) -> bool:
        """Carry some of what a host has said; whether there may be more."""
        for _ in range(FRAMES_A_TURN_MAX):
            try:
                frame = os.read(descriptor, FRAME_BYTES_MAX)
            except BlockingIOError:
                return False
            target = self._by_hardware.get(frame[:6].hex())
            if target is not None:  # else it is for everybody: what hosts tell unasked, and nobody needs
                self._send((source, target), frame)
        return True

    def _send(self, pair: Pair, frame: bytes) -> None:
        way = self._ways.get(pair)
        if pair in self._cuts:
            self.lost[pair] += 1
        elif way is None:
            self._hand_over(pair, frame)
        else:
            now = leaves = time.monotonic()
            if way.bits_per_second:
                leaves = max(now, self._free_at.get(pair, 0.0)) + len(frame) * 8 / way.bits_per_second
            if leaves - now > QUEUE_SECONDS_MAX or len(self._waiting) >= WAITING_FRAMES_MAX:
                self.lost[pair] += 1
                return
            self._free_at[pair] = leaves
            self._count += 1  # frames of one instant stay in order
            heapq.heappush(self._waiting, (leaves + way.delay_seconds, self._count, pair, frame))

    def _hand_over(self, pair: Pair, frame: bytes) -> None:
        try:
            os.write(self._devices[pair[1]], frame)
        except BlockingIOError:
            self.lost[pair] += 1
        else:
            self.carried[pair] += 1

    def _stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            os.eventfd_write(self._bell, 1)
        self._thread.join()


@contextmanager
def network(hosts: Sequence[str]) -> Iterator[Network]:
    """Hosts that can talk to each other, gone afterwards with everything that was made for them."""
    with ExitStack() as held:
        yield Network(hosts, held)


def _address(number: int) -> str:
    return f"10.231.0.{number}"


def _hardware(number: int) -> str:
    return f"02:68:61:6e:00:{number:02x}"


def _set_namespace(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*words: str, said: str = "") -> None:
    done = subprocess.run(["ip", *words], input=said, text=True, capture_output=True, check=False)
    assert not done.returncode, f"ip {' '.join(words)}: {done.stderr}{said}"
