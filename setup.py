"""The build step that ``pyproject.toml`` cannot say: compile what is written in C, if this machine can.

``kernels.c`` becomes ``_kernels.so`` beside it, the files of the supervisor the program ``_supervisor``
beside them, those of the compiled league ``_plain.so``, those of the worlds ``_world.so``: in the wheel for
``pip install .``, in the tree for ``pip install -e .`` and ``python setup.py build_kernel``. Without a C
compiler the installation goes on with a warning: the NumPy twin does the work of the kernels more slowly, the
machines that of the plain league, the Python twin that of the worlds, and the process backend says what it
lacks when it is asked to run something. ``$CC`` names another compiler.
"""

import os
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent / "src"
COMPILE_SECONDS_MAX = 300


class Product(NamedTuple):
    """Something to compile."""

    folder: Path
    """All C files and headers in it decide what comes out."""
    result: str
    flags: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    """Further flags, tried in this order until the compiler manages."""
    without: str
    """What is to be said when there is none."""

    @property
    def beside(self) -> Path:
        """The result in the source tree."""
        return ROOT / self.folder / self.result

    @property
    def sources(self) -> list[str]:
        """C files and headers, in the order in which their sum is taken; headers are not compiled."""
        return sorted(path.name for path in (ROOT / self.folder).iterdir() if path.suffix in (".c", ".h"))

    def crc(self) -> int:
        """A sum over all sources: what is compiled knows it, so that a stale result is found out."""
        crc = 0
        for name in self.sources:
            crc = zlib.crc32((ROOT / self.folder / name).read_bytes(), crc)
        return crc

    def compiled(self) -> list[str]:
        """The sources that a compiler is given."""
        return [str(ROOT / self.folder / name) for name in self.sources if name.endswith(".c")]


KERNELS = Product(
    Path("hanse/policy/kernels"),
    "_kernels.so",
    ("-O3", "-shared", "-fPIC", "-std=c99", "-ffp-contract=off"),
    ((), ("-DHANSE_NO_CLONES",)),  # the latter where a function cannot have several versions (no GNU ifunc)
    "the NumPy twin gives the same answers, more slowly",
)
SUPERVISOR = Product(
    Path("hanse/live/supervisor"),
    "_supervisor",
    ("-O2", "-std=c99"),
    (("-static",), ()),  # static: a cheaper fork, and it runs in any sandbox; not every machine has a libc.a
    "tasks cannot run as processes of this machine",
)
PLAIN = Product(
    Path("hanse/sim/replay/compiled"),
    "_plain.so",
    ("-O3", "-shared", "-fPIC", "-std=c99", "-fvisibility=hidden"),
    ((),),
    "the machines themselves play a replay, a hundred times more slowly",
)
WORLD = Product(
    Path("hanse/sim/worlds/compiled"),
    "_world.so",
    ("-O3", "-shared", "-fPIC", "-std=c99", "-ffp-contract=off", "-fvisibility=hidden"),
    ((),),
    "replays in a world give the same outcome, a hundred times more slowly",
)
PRODUCTS = (KERNELS, SUPERVISOR, PLAIN, WORLD)


def compilers() -> list[list[str]]:
    """Commands to try, as argument lists: ``$CC`` alone if it is set, else the usual names that exist."""
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        return [shlex.split(chosen)]
    return [[name] for name in ("cc", "gcc", "clang") if shutil.which(name)]


def build(product: Product, target: Path) -> bool:
    """Compile to ``target``; False, with a warning, if no compiler manages it.

    An older result there does not survive a failure: none is better than a stale one.
    """
    partial = target.with_suffix(".partial")
    crc = f"-DHANSE_SOURCE_CRC={product.crc()}u"
    complaint = "no C compiler was found (cc, gcc or clang; or set CC)"
    for command in compilers():
        for variant in product.variants:
            complaint = attempt(
                [*command, *product.flags, crc, *variant, *product.compiled(), "-o", str(partial)]
            )
            if not complaint:
                partial.replace(target)  # never written in place: a process may be using it
                return True
    partial.unlink(missing_ok=True)
    target.unlink(missing_ok=True)
    print(
        f"hanse: WARNING: {product.result} was not built: {complaint}.\n"
        f"hanse: WARNING: the installation goes on; {product.without}.",
        file=sys.stderr,
    )
    return False


def build_in_tree(product: Product) -> bool:
    """Compile beside the source."""
    return build(product, product.beside)


def attempt(command: list[str]) -> str:
    """Run a compiler; the empty string, or what is wrong."""
    try:
        done = subprocess.run(  # noqa: S603  the command is the builder's own compiler
            command, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return "" if done.returncode == 0 else f"{command[0]} failed: {done.stderr.strip()[-500:]}"


def install() -> None:
    """Hand over to setuptools, with the compilation as part of its steps."""
    from setuptools import setup  # noqa: PLC0415  build_kernel must run where setuptools is old or missing
    from setuptools.command.bdist_wheel import bdist_wheel  # noqa: PLC0415  as above
    from setuptools.command.build_py import build_py  # noqa: PLC0415  as above

    class BuildWithKernel(build_py):
        """Compiles into what is being built: the wheel, or the tree for an editable install."""

        def run(self) -> None:
            """Copy the modules, then compile beside the copy of the source."""
            super().run()
            for product in PRODUCTS:
                target = product.beside
                if not self.editable_mode:
                    target = Path(self.build_lib) / product.folder / product.result
                build(product, target)

    class WheelWithKernel(bdist_wheel):
        """Names its platform if it holds machine code, and any Python 3: what is compiled knows no Python."""

        def get_tag(self) -> tuple[str, str, str]:
            """Asked after the build, when it is known what is in."""
            if not any((Path(self.bdist_dir) / each.folder / each.result).exists() for each in PRODUCTS):
                return super().get_tag()
            self.root_is_pure = False
            return "py3", "none", super().get_tag()[2]

    setup(cmdclass={"bdist_wheel": WheelWithKernel, "build_py": BuildWithKernel})


if __name__ == "__main__":  # as pip runs it; a test imports it
    if sys.argv[1:] == ["build_kernel"]:
        # Who asks for it by name wants to know: here a failure is one.
        sys.exit(0 if all(list(map(build_in_tree, PRODUCTS))) else 1)
    install()
