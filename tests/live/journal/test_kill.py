"""A real process, killed at any moment: what it has acknowledged is there."""

import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path

from hanse.live.journal import Journal

KILLS = 25
NUMBER = struct.Struct("<Q")

WRITER = """
import struct, sys, threading
from pathlib import Path
from hanse.live.journal import Journal

journal, recovered = Journal.open(Path(sys.argv[1]), segment_bytes=64 << 10, retain_bytes=128 << 10)
wanted = threading.Semaphore(0)
room = threading.Semaphore(200)

def commit():
    told = journal.durable
    while True:
        wanted.acquire()
        durable = journal.commit()
        if durable > told:
            room.release(durable - told)
            told = durable
            sys.stdout.buffer.write(struct.pack("<Q", durable))
            sys.stdout.buffer.flush()
            if durable % 7 == 0:
                journal.snapshot(durable, b"%d" % durable)

threading.Thread(target=commit, daemon=True).start()
while True:
    room.acquire()
    number = journal.position + 1
    journal.append(b"%d," % number * (number % 300))
    wanted.release()
"""


def content(number: int) -> bytes:
    return b"%d," % number * (number % 300)


def test_nothing_acknowledged_is_missing_after_any_kill(tmp_path: Path) -> None:
    draw = random.Random(11)
    acknowledged = 0
    for _ in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        wait_for = draw.randrange(1, 60)
        heard = b""
        while len(heard) < wait_for * NUMBER.size:
            piece = os.read(writer.stdout.fileno(), 4096)
            assert piece, "the writer died by itself"
            heard += piece
        os.kill(writer.pid, signal.SIGKILL)
        heard += writer.stdout.read()
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        told = [number for (number,) in NUMBER.iter_unpack(heard[: len(heard) // NUMBER.size * NUMBER.size])]
        assert told == sorted(told)
        assert told[0] > acknowledged
        acknowledged = told[-1]
        journal, recovered = Journal.open(tmp_path)
        assert journal.position >= acknowledged
        begin = recovered.snapshot_position
        assert recovered.records == [content(number) for number in range(begin + 1, journal.position + 1)]
        assert recovered.snapshot is None or recovered.snapshot == b"%d" % begin
        acknowledged = journal.position
        journal.close()
    assert acknowledged > KILLS * 5
