"""House rules that no linter knows: words, sizes, order, and what a repository must not contain.

The lists of exceptions are ratchets: each entry is the size of something too large when it was listed. It may
shrink, and leaves the list when it is small enough; it may not grow.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hanse"
PURE = ("model", "policy", "core")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = sorted([*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])
OWN = sorted(SOURCE.rglob("*.py"))

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 50

LARGE_MODULES: dict[str, int] = {  # longer since names are: to be split by concept
    "src/hanse/live/backends/process/backend.py": 508,
    "src/hanse/live/rpc/message_validators.py": 513,
    "src/hanse/live/telemetry/broker_metrics.py": 503,
    "src/hanse/sdk/workers/worker.py": 520,
    "src/hanse/sim/checkers.py": 529,
    "src/hanse/sim/process.py": 542,
    "tests/live/backends/slurm/test_words.py": 516,
    "tests/live/rpc/test_validation.py": 510,
    "tests/policy/test_kernels.py": 505,
}
LARGE_FUNCTIONS: dict[str, int] = {
    "src/hanse/live/readmodel/projector.py:Projector.__init__": 51,
    "src/hanse/live/warden_daemon.py:WardenDaemon.start": 53,
    "src/hanse/sdk/workers/worker.py:connect_to_executor": 51,
    "src/hanse/sim/process.py:Process.__init__": 52,
    "tests/live/telemetry/test_metrics.py:test_a_warden_shows_what_it_gave_and_how_fast_tasks_start": 53,
    "tests/live/telemetry/test_metrics.py:test_a_brokers_jobs_are_counted_from_arrival_to_end": 53,
    "tests/live/telemetry/test_metrics.py:test_a_brokers_jobs_are_counted_from_arrival_to_end.tale": 51,
}

WORDS_ALLOWED = {
    "GLOSSARY.md": "lists the banned words, and what the literature calls our roles",
    "src/hanse/learning/edge/training/adapters.py": "PettingZoo's interface calls its players agents",
    "docs/edge.md": "says how that interface and source 002 are to be read",
}
"""Files in which banned words may stand, and why."""
LINES_ALLOWED: dict[str, str] = {"MS_REC | MS_SLAVE": "the name that Linux has for it"}
"""Texts that make a line with a banned word acceptable (names of published systems, say), and why."""


def banned_words(glossary: str) -> dict[str, str]:
    """The banned words and what to write instead, from the last table of the glossary."""
    _, _, section = glossary.partition("## Banned as roles")
    rows = re.findall(r"^\| (\w+) \| (.+?) \|$", section, flags=re.MULTILINE)
    return {word: instead for word, instead in rows if word != "banned"}


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, text: list[str]) -> int:
    """Lines of a function from ``def`` to its end that are neither its docstring, nor comments, nor empty."""
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    skipped = range(first.lineno, (first.end_lineno or 0) + 1) if documented else range(0)
    lines = range(node.lineno, (node.end_lineno or 0) + 1)
    return sum(
        number not in skipped
        and text[number - 1].strip() != ""
        and not text[number - 1].strip().startswith("#")
        for number in lines
    )


def functions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its dotted name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def is_set(node: ast.AST) -> bool:
    """Whether an expression is visibly a set: its order would differ between processes."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("set", "frozenset"):
            return True
        if node.func.id in ("list", "tuple", "enumerate", "iter", "reversed", "zip", "map"):
            return any(is_set(argument) for argument in node.args)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Sub | ast.BitXor):
        return is_set(node.left) or is_set(node.right) or _is_keys(node.left) or _is_keys(node.right)
    return False


def _is_keys(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def set_walks(tree: ast.AST) -> list[int]:
    """Lines in which a set is iterated, or named and then iterated in the same function."""
    named = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_set(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            subject = node.iter
            if is_set(subject) or (isinstance(subject, ast.Name) and subject.id in named):
                found.append(subject.lineno)
    return found


# --- the checks themselves, tried on what they must find ---------------------------------------------------


def test_the_glossary_is_read() -> None:
    words = banned_words((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))
    assert {"master", "slave", "agent"} <= set(words)
    assert all(words.values())


@pytest.mark.parametrize(
    "code",
    [
        "for x in set(y): pass",
        "for x in {1, 2}: pass",
        "[x for x in {z for z in y}]",
        "for x in a.keys() & b.keys(): pass",
        "for i, x in enumerate(frozenset(y)): pass",
        "s = {1, 2}\nfor x in s: pass",
    ],
)
def test_walks_over_sets_are_found(code: str) -> None:
    assert set_walks(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    ["for x in sorted(set(y)): pass", "z = x in {1, 2}", "for x in {1: 2}: pass", "for x in a & b: pass"],
)
def test_orderly_code_passes(code: str) -> None:
    assert not set_walks(ast.parse(code))


def test_code_lines_leave_prose_out() -> None:
    text = 'def f():\n    """Said\n    so."""\n    # why\n\n    return (\n        1\n    )'
    (_, node), *_ = functions(ast.parse(text))
    assert code_lines(node, text.split("\n")) == 4


# --- the house ---------------------------------------------------------------------------------------------


def test_nobody_uses_banned_words() -> None:
    words = banned_words((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))
    pattern = re.compile(rf"(?<![a-z])({'|'.join(words)})s?(?![a-z])", flags=re.IGNORECASE)
    complaints = []
    sources = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".c", ".toml")]
    for path in [*sorted(sources), *DOCUMENTS]:
        if where(path) in WORDS_ALLOWED:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            for match in pattern.finditer(line):
                if not any(text in line for text in LINES_ALLOWED):
                    instead = words[match[1].lower()]
                    complaints.append(f"{where(path)}:{number}: {match[0]!r}; write {instead}")
    assert not complaints, "\n".join(complaints)


def test_modules_stay_small() -> None:
    sizes = {where(path): len(path.read_text(encoding="utf-8").split("\n")) - 1 for path in MODULES}
    large = {name: size for name, size in sizes.items() if size > MODULE_LINES_MAX}
    assert_ratchet(large, LARGE_MODULES, f"lines; at most {MODULE_LINES_MAX}")


def test_functions_stay_small() -> None:
    large = {}
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        for name, node in functions(ast.parse(text)):
            size = code_lines(node, text.split("\n"))
            if size > FUNCTION_LINES_MAX:
                large[f"{where(path)}:{name}"] = size
    assert_ratchet(large, LARGE_FUNCTIONS, f"code lines; at most {FUNCTION_LINES_MAX}")


def assert_ratchet(large: dict[str, int], known: dict[str, int], unit: str) -> None:
    grown = [f"{name} has {size} {unit}" for name, size in large.items() if size > known.get(name, 0)]
    assert not grown, "\n".join(grown)
    small = [name for name in known if name not in large]
    assert not small, f"small enough by now: take these off the list: {', '.join(small)}"


def test_the_pure_rooms_never_iterate_a_set() -> None:
    found = [
        f"{where(path)}:{line}"
        for room in PURE
        for path in sorted((SOURCE / room).rglob("*.py"))
        for line in set_walks(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, found


def test_only_the_command_line_prints() -> None:
    found = [
        f"{where(path)}:{node.lineno}"
        for path in OWN
        if path.relative_to(SOURCE).parts[0] != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, found


def test_no_file_names_a_machine() -> None:
    """Absolute paths and addresses of the host somebody worked on mean nothing to anybody else."""
    pattern = re.compile(
        r"(?<![\w.])/(?:home|root|tmp|work|Users|opt|mnt)/[\w.]|file:///|(?:localhost|127\.0\.0\.1):\d"
    )
    chosen = [*MODULES, *DOCUMENTS, *(ROOT / "tests").rglob("*.txt"), ROOT / "Makefile", ROOT / ".ci" / "run",
              ROOT / "pyproject.toml", ROOT / "setup.py", ROOT / "requirements.lock"]  # fmt: skip
    found = [
        f"{where(path)}:{number}: {line.strip()[:80]}"
        for path in chosen
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_lock_names_exact_versions() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").split("\n")
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+]+", pin) for pin in pins), pins
