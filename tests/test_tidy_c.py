"""House rules for C: sizes, words of headers, and a build that knows every file.

The list of exceptions is a ratchet as in ``test_tidy.py``.
"""

import os
import re
import shutil
import subprocess
import zlib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from hanse.live import supervisor
from hanse.policy.kernels.shared_library import source_names
from tests.test_tidy import ROOT, SOURCE, assert_ratchet, banned_words, where

FILES = sorted([*SOURCE.rglob("*.c"), *SOURCE.rglob("*.h")])
FILE_LINES_MAX = 405
"""The limit is 450 lines, and nothing may come within a tenth of it."""
LARGE_FILES: dict[str, int] = {
    "src/hanse/policy/kernels/kernels.c": 497,
    "src/hanse/sim/replay/compiled/league.c": 442,
}
FOLDERS = sorted({path.parent for path in FILES})


def test_files_in_c_stay_small() -> None:
    sizes = {where(path): path.read_text(encoding="utf-8").count("\n") for path in FILES}
    large = {name: size for name, size in sizes.items() if size > FILE_LINES_MAX}
    assert_ratchet(large, LARGE_FILES, f"lines; at most {FILE_LINES_MAX}")


def test_headers_use_no_banned_words() -> None:
    words = banned_words((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))
    pattern = re.compile(rf"(?<![a-z])({'|'.join(words)})s?(?![a-z])", flags=re.IGNORECASE)
    found = [f"{where(path)}: {match[0]}" for path in FILES if path.suffix == ".h"
             for match in pattern.finditer(path.read_text(encoding="utf-8"))]  # fmt: skip
    assert not found, found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_in_c_is_installed(folder: Path) -> None:
    """Where a header is missing, the sum of the sources is another one than that of what was compiled."""
    listed = re.search(r"^hanse = (\[.*\])$", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert listed is not None
    for suffix in {path.suffix for path in FILES if path.parent == folder}:
        assert f'"{folder.relative_to(SOURCE).as_posix()}/*{suffix}"' in listed[1]


def test_the_build_knows_all_sources() -> None:
    """In the order in which their sum is taken when the result is loaded."""
    specification = spec_from_file_location("hanse_setup", ROOT / "setup.py")
    assert specification is not None
    assert specification.loader is not None
    setup = module_from_spec(specification)
    specification.loader.exec_module(setup)
    assert sorted(setup.ROOT / product.folder for product in setup.PRODUCTS) == FOLDERS
    for product in setup.PRODUCTS:
        folder = setup.ROOT / product.folder
        assert product.sources == source_names(folder)
        assert product.compiled() == [str(folder / name) for name in product.sources if name.endswith(".c")]


def test_the_sum_covers_every_source_of_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "supervisor"
    shutil.copytree(supervisor.PROGRAM.parent, copy)
    monkeypatch.setattr(supervisor, "PROGRAM", copy / "_supervisor")
    before = supervisor.source_checksum.__wrapped__()
    expected = 0
    for name in source_names(copy):
        expected = zlib.crc32((copy / name).read_bytes(), expected)
    assert before == expected
    for path in supervisor.source_files():
        text = path.read_bytes()
        path.write_bytes(text + b"\n")
        assert supervisor.source_checksum.__wrapped__() != before, path.name
        path.write_bytes(text)
    assert len(supervisor.source_files()) == len(list(copy.glob("*.[ch]"))) > 20


def test_the_supervisor_compiles_without_a_warning(tmp_path: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    sources = [str(path) for path in supervisor.source_files() if path.suffix == ".c"]
    flags = ["-O2", "-std=c99", "-Wall", "-Wextra", "-Wshadow", "-Wmissing-prototypes", "-Werror"]
    command = [compiler, *flags, *sources, "-o", str(tmp_path / "_supervisor")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
