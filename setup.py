"""The build step that ``pyproject.toml`` cannot say: compile the kernels, if this machine can.

``kernels.c`` becomes ``_kernels.so`` beside it: in the wheel for ``pip install .``, in the tree for
``pip install -e .`` and for ``python setup.py build_kernel``. Without a C compiler the installation goes on
with a warning, and the NumPy twin does the same work more slowly. ``$CC`` names another compiler.
"""

import os
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

FOLDER = Path("hanse/policy/kernel")
SOURCE = Path(__file__).parent / "src" / FOLDER / "kernels.c"
LIBRARY = "_kernels.so"
FLAGS = ["-O3", "-shared", "-fPIC", "-std=c99", "-ffp-contract=off"]
COMPILE_SECONDS_MAX = 300


def compilers() -> list[list[str]]:
    """Commands to try, as argument lists: ``$CC`` alone if it is set, else the usual names that exist."""
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        return [shlex.split(chosen)]
    return [[name] for name in ("cc", "gcc", "clang") if shutil.which(name)]


def compile_kernels(target: Path) -> bool:
    """Write the shared library to ``target``; False, with a warning, if no compiler manages it.

    An older library there does not survive a failure: none is better than a stale one. The second try of each
    compiler is for platforms where a function cannot have several versions (no GNU ifunc).
    """
    partial = target.with_suffix(".partial")
    crc = f"-DHANSE_SOURCE_CRC={zlib.crc32(SOURCE.read_bytes())}u"
    complaint = "no C compiler was found (cc, gcc or clang; or set CC)"
    for command in compilers():
        for extra in ([], ["-DHANSE_NO_CLONES"]):
            complaint = attempt([*command, *FLAGS, crc, *extra, str(SOURCE), "-o", str(partial)])
            if not complaint:
                partial.replace(target)  # never written in place: a process may be using it
                return True
    partial.unlink(missing_ok=True)
    target.unlink(missing_ok=True)
    print(
        f"hanse: WARNING: the compiled kernels were not built: {complaint}.\n"
        "hanse: WARNING: the installation goes on; the NumPy twin gives the same answers, more slowly.",
        file=sys.stderr,
    )
    return False


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
            target = SOURCE.with_name(LIBRARY)
            if not self.editable_mode:
                target = Path(self.build_lib) / FOLDER / LIBRARY
            compile_kernels(target)

    class WheelWithKernel(bdist_wheel):
        """Names its platform if it holds machine code, and any Python 3: the library knows no Python."""

        def get_tag(self) -> tuple[str, str, str]:
            """Asked after the build, when it is known whether the library is in."""
            if not (Path(self.bdist_dir) / FOLDER / LIBRARY).exists():
                return super().get_tag()
            self.root_is_pure = False
            return "py3", "none", super().get_tag()[2]

    setup(cmdclass={"bdist_wheel": WheelWithKernel, "build_py": BuildWithKernel})


if sys.argv[1:] == ["build_kernel"]:
    # Who asks for the kernels by name wants to know: here a failure is one.
    sys.exit(0 if compile_kernels(SOURCE.with_name(LIBRARY)) else 1)
install()
