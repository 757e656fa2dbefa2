"""``python -m tools.twin``: say where the compiled league may no longer do what the machines do.

``--follow`` renames functions that have moved unchanged; ``--accept`` writes the present digests into the
table, after somebody has compared each function that is reported with its twin.
"""

import argparse
import sys

from tools.twin.mirrors import PACKAGE, TABLE, accept, find_problems, follow

REBUILD = "The C files have changed: build them again with `python setup.py build_kernel`."


def main() -> int:
    """Do what the options say; 0 if nothing is left to be looked at."""
    parser = argparse.ArgumentParser(prog="python -m tools.twin", description=__doc__)
    parser.add_argument(
        "--follow", action="store_true", help="name functions that moved unchanged by their new place"
    )
    parser.add_argument("--accept", action="store_true", help=f"write the present digests into {TABLE.name}")
    options = parser.parse_args()
    if options.follow:
        moved = {each.mirror: each.moved_to for each in find_problems(PACKAGE) if each.kind == "moved"}
        follow(PACKAGE, moved)
        for old, new in moved.items():
            print(f"renamed: {old} to {new}")
        print(REBUILD if moved else "nothing has moved")
    if options.accept:
        for mirror in accept(PACKAGE):
            print(f"accepted: {mirror}")
    problems = find_problems(PACKAGE)
    for problem in problems:
        print(problem.text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
