"""``python -m tools.site``: gather the pages of the site in a folder, or check a built site."""

import argparse
import sys
from pathlib import Path

from tools.site.outside import fetched_outside
from tools.site.pages import BrokenLinkError, stage


def main() -> int:
    """Gather or check; the status to end with."""
    parser = argparse.ArgumentParser(prog="python -m tools.site")
    parser.add_argument("--gather", type=Path, metavar="FOLDER", help="write all pages there")
    parser.add_argument("--check", type=Path, metavar="SITE", help="fail if a page fetches from elsewhere")
    arguments = parser.parse_args()
    if arguments.gather:
        try:
            print(f"{stage(arguments.gather)} files are in {arguments.gather}")
        except BrokenLinkError as error:
            print(error, file=sys.stderr)
            return 1
    if arguments.check:
        found = list(fetched_outside(arguments.check))
        print("\n".join(found) or f"no page of {arguments.check} fetches anything from another host")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
