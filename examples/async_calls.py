"""Calls from asyncio, and a function that declares its needs. Run it after ``hanse up``."""

import asyncio

import hanse


@hanse.task(cpus=1, retries=3)
def square(number: int) -> int:
    """Square a number: a plain call runs here, ``square.submit`` runs in the league."""
    return number * number


async def main() -> None:
    """Make calls and run a job at the same time."""
    async with hanse.AsyncClient(max_workers=2) as client:
        job = await client.run("echo from a job")
        squares = await asyncio.gather(*(client.submit(square.function, number) for number in range(5)))
        print(squares, (await job.result()).strip())


if __name__ == "__main__":
    asyncio.run(main())
