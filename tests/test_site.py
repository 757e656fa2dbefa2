"""The documentation site: every page can be found, links fit, and nothing is fetched from elsewhere."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.site import pages
from tools.site.outside import fetched_outside

ROOT = Path(__file__).parent.parent


class Loader(yaml.SafeLoader):
    """Reads names of Python objects as nothing: the generator alone needs them."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    return found


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [leaf for part in parts for leaf in leaves(part)]


def test_the_navigation_has_every_page_and_no_other() -> None:
    """Decisions are found from their own list."""
    there = {name for name in pages.sources().values() if name.endswith(".md")}
    decisions = {name for name in there if name.startswith("adr/0")}
    listed = leaves(settings()["nav"])
    assert len(listed) == len(set(listed))
    assert set(listed) == there - decisions


def test_the_sections_of_the_navigation() -> None:
    heads = [head for entry in settings()["nav"] for head in entry]
    assert heads == [
        *("Home", "Start", "User guide", "Operator guide", "Research"),
        *("Architecture", "Contributing", "Reference", "Decisions", "Results"),
    ]


def test_links_are_made_to_fit(tmp_path: Path) -> None:
    assert pages.stage(tmp_path) > 60
    overview = (tmp_path / "architecture" / "index.md").read_text(encoding="utf-8")
    assert "](../glossary.md)" in overview
    assert "](protocol.md" in overview
    assert "](docs/" not in overview
    home = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "](architecture/index.md)" in home


def test_links_to_what_has_no_page_become_text_and_broken_ones_are_errors() -> None:
    there = pages.sources()
    path = ROOT / "docs" / "index.md"
    assert pages.rewritten("see [the files](../deploy) and [x](https://example.org)", path, there) == (
        "see the files and [x](https://example.org)"
    )
    assert (
        pages.rewritten("```\n[the files](../deploy)\n```\n", path, there)
        == "```\n[the files](../deploy)\n```\n"
    )
    with pytest.raises(pages.BrokenLinkError, match=r"docs/index.md: nowhere.md does not exist"):
        pages.rewritten("[x](nowhere.md)", path, there)


def test_what_a_page_fetches_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">x</a><script src="vendor/a.js"></script>'
        '<script src="https://cdn.example.org/a.js"></script><img src="//cdn.example.org/b.png">',
        encoding="utf-8",
    )
    assert list(fetched_outside(tmp_path)) == [
        "page.html fetches https://cdn.example.org/a.js",
        "page.html fetches //cdn.example.org/b.png",
    ]


def test_the_generator_is_pinned_with_all_it_needs() -> None:
    lines = (ROOT / "tools" / "site" / "requirements.lock").read_text(encoding="utf-8").split("\n")
    pins = [line for line in lines if line and not line.startswith("#")]
    assert any(pin.startswith("zensical==") for pin in pins)
    assert all("==" in pin for pin in pins)
