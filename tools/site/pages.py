"""Copy the documents to one folder, so that a site generator finds them all and every link leads to a page.

``docs/`` is copied as it is. Documents of the repository's root become pages beside them. A link to another
file of the repository (source, examples, deployment) has no page to lead to and becomes plain text. A link to
something that does not exist is an error.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
ROOT_PAGES: Final = {
    "ARCHITECTURE.md": "architecture/index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "GLOSSARY.md": "glossary.md",
}
"""Documents of the root that are pages of the site, and where they stand there."""
COPIED: Final = (".md", ".svg", ".png", ".json")
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCED: Final = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


class BrokenLinkError(Exception):
    """A link of a document leads nowhere."""


def sources() -> dict[Path, str]:
    """Every file of the site, with its path there."""
    folder = ROOT / "docs"
    found = {
        path: path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.suffix in COPIED
    }
    return found | {ROOT / name: there for name, there in ROOT_PAGES.items()}


def stage(target: Path) -> int:
    """Write all pages below ``target``, which is emptied first; how many files there are."""
    shutil.rmtree(target, ignore_errors=True)
    there = sources()
    for path, name in there.items():
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(page(path, there), encoding="utf-8")
        else:
            shutil.copyfile(path, copy)
    return len(there)


def page(path: Path, there: dict[Path, str]) -> str:
    """One document with its links as the site needs them."""
    return rewritten(path.read_text(encoding="utf-8"), path, there)


def rewritten(text: str, path: Path, there: dict[Path, str]) -> str:
    """The text of the document at ``path``, with its links as the site needs them."""

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        file, _, anchor = target.partition("#")
        aim = (path.parent / file).resolve()
        if not aim.exists():
            raise BrokenLinkError(f"{path.relative_to(ROOT).as_posix()}: {target} does not exist")
        if aim.is_dir() and aim / "README.md" in there:
            aim /= "README.md"
        if aim not in there:
            return label
        way = os.path.relpath(there[aim], Path(there[path]).parent)
        return f"{mark}[{label}]({Path(way).as_posix()}{'#' if anchor else ''}{anchor})"

    return outside_code(text, lambda part: _LINK.sub(link, part))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with ``change`` made to everything but fenced code."""
    parts: list[str] = []
    end = 0
    for block in _FENCED.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])
