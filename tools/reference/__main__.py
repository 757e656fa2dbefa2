"""``python -m tools.reference``: write the generated pages. ``--check`` only says which are not current."""

import argparse
import sys

from tools.reference.pages import outdated, write


def main() -> int:
    """Write or check; the status to end with."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is not current")
    if not parser.parse_args().check:
        for name in write():
            print(f"{name} was written")
        return 0
    late = outdated()
    for name in late:
        print(f"{name} is not current; run 'python -m tools.reference'", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
