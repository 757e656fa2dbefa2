"""Packages that are installed as far as their metadata says, without pip."""

from pathlib import Path


def install(directory: Path, package: str, groups: dict[str, dict[str, str]], version: str = "1.0") -> None:
    """Write the metadata of a package with these entry points: group -> name -> target."""
    place = directory / f"{package.replace('-', '_')}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")
