"""Calls in a league, as with any executor of ``concurrent.futures``. Run it after ``hanse up``."""

from concurrent.futures import as_completed

import hanse


def collatz(number: int) -> tuple[int, int]:
    """Count the steps that a number takes down to 1."""
    start, steps = number, 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return start, steps


def main() -> None:
    """Find the longest way down among a thousand numbers."""
    with hanse.Executor(max_workers=2, name="collatz") as executor:
        futures = [executor.submit(collatz, number) for number in range(1, 1_001)]
        number, steps = max((future.result() for future in as_completed(futures)), key=lambda found: found[1])
        print(f"{number} takes {steps} steps; it was counted in {futures[number - 1].cluster}")


if __name__ == "__main__":
    main()
