"""Find what a built page would fetch from another host. A link that a reader clicks is no such thing."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

_FETCHED: Final = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "link": "href", "object": "data",
    "script": "src", "source": "src", "video": "src",
}  # fmt: skip
"""Tags that make a browser fetch something, and the attribute that says what."""


class _Fetches(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get(_FETCHED.get(tag, ""))
        if target and target.startswith(("http:", "https:", "//")):
            self.found.append(target)


def fetched_outside(site: Path) -> Iterator[str]:
    """Every fetch from another host, with the page that makes it."""
    for path in sorted(site.rglob("*.html")):
        parser = _Fetches()
        parser.feed(path.read_text(encoding="utf-8"))
        for target in parser.found:
            yield f"{path.relative_to(site)} fetches {target}"
