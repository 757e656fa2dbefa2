"""How a benchmark tells its figures: to the screen, and to a file with ``--json``."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def options_of(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    return parser


def tell(figures: dict[str, Any], file: Path | None) -> None:
    """Print the figures, and write them if asked to."""
    text = json.dumps(figures, indent=2)
    print(text)
    if file is not None:
        file.write_text(text + "\n", encoding="utf-8")


def as_program(run: Callable[[], dict[str, Any]], description: str) -> None:
    """A benchmark without options of its own, as a program."""
    options = options_of(description).parse_args()
    tell(run(), options.json)
