"""Coverage-guided fuzzing of the receiving path with atheris, down into a real broker and a real warden.

    python tests/live/rpc/fuzz_frames.py -max_total_time=600     # any option of libFuzzer

A quarter of the inputs are a frame's content, byte by byte; the others are choices for tales of changed
messages (``nonsense``), because few random bytes get past a typed decoder. Whatever passes decoding, the
table of roles and vetting goes into the machines, and no exception may come out. A finding ends the run with
a trace and leaves the input in a file ``crash-...``; give that file as the only argument to see it again.
Without a folder of inputs to start from, one is made: real frames, and dice.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.live.rpc.nonsense import Harness

ROOT = Path(__file__).parents[3]
MISSING = 3
"""Exit status when atheris is not installed."""
INPUT_BYTES_MAX = 4_096
DICE = 200
"""Inputs of random choices to start from."""


def main() -> None:
    """Fuzz until libFuzzer's options say stop, or something is found."""
    try:
        atheris = import_module("atheris")  # has no types, and is not everywhere
    except ImportError:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        sys.exit(MISSING)
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    with atheris.instrument_imports(include=["hanse"]):
        from tests.live.rpc.nonsense import Harness, Stage

    class Provided:
        """Choices from the fuzzer's bytes; when they are used up, the first of everything."""

        def __init__(self, data: bytes) -> None:
            self.provider = atheris.FuzzedDataProvider(data)

        def below(self, count: int) -> int:
            number: int = self.provider.ConsumeIntInRange(0, count - 1)
            return number

    stage = Stage()  # the same in every run
    harnesses = (Harness(stage.broker), Harness(stage.warden))

    def one(data: bytes) -> None:
        choices = Provided(data)
        harness = harnesses[choices.below(2)]
        if choices.below(4):
            harness.tale(choices)
            return
        machine = harness.target.machine()
        content = choices.provider.ConsumeBytes(choices.provider.remaining_bytes())
        harness.arrive(content, machine, harness.limits(machine), harness.target.now)

    options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if all(option.startswith("-") for option in options):
            _seed(Path(folder), harnesses)
            options += [folder, "-len_control=0", f"-max_len={INPUT_BYTES_MAX}"]
        atheris.Setup([sys.argv[0], *options], one)
        atheris.Fuzz()


def _seed(folder: Path, harnesses: "tuple[Harness, ...]") -> None:
    """Inputs to start from. Choices are read from the end of an input, last byte first."""
    random = Random(1)
    for which, harness in enumerate(harnesses):
        for kind, kept in sorted(harness.target.seeds.items()):
            content = msgspec.msgpack.encode([kept[-1]])
            (folder / f"{which}-{kind}").write_bytes(content + bytes((0, which)))
    for number in range(DICE):
        (folder / f"dice-{number}").write_bytes(random.randbytes(random.randrange(16, 400)))


if __name__ == "__main__":
    main()
