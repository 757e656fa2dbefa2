"""Futures as arguments make a graph: a call starts when what it needs is there. Run it after ``hanse up``."""

import hanse


def block(seed: int) -> bytes:
    """A large value; it goes from hand to hand without coming here."""
    return bytes([seed]) * 1_000_000


def total(blocks: list[bytes]) -> int:
    """The sum over all blocks."""
    return sum(map(sum, blocks))


def main() -> None:
    """Four blocks, then their sum, then what is done with it."""
    with hanse.Client(hands=2) as client:
        blocks = [client.submit(block, seed) for seed in range(4)]
        whole = client.submit(total, blocks)
        millions = client.submit(divmod, whole, 1_000_000)
        print(f"{millions.result()[0]} millions")


if __name__ == "__main__":
    main()
