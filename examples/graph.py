"""Futures as arguments make a graph: a call starts when its arguments are ready. Run ``hanse up`` first."""

import hanse


def block(seed: int) -> bytes:
    """Return a large value, which goes from worker to worker without coming here."""
    return bytes([seed]) * 1_000_000


def total(blocks: list[bytes]) -> int:
    """Return the sum over all blocks."""
    return sum(map(sum, blocks))


def main() -> None:
    """Make four blocks, then their sum, then use the sum."""
    with hanse.Client(max_workers=2) as client:
        blocks = [client.submit(block, seed) for seed in range(4)]
        whole = client.submit(total, blocks)
        millions = client.submit(divmod, whole, 1_000_000)
        print(f"{millions.result()[0]} millions")


if __name__ == "__main__":
    main()
