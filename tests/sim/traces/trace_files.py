"""Tiny trace files."""

import gzip
from pathlib import Path

SWF_HEAD = "; MaxNodes: 4\n; MaxProcs: 8\n; UnixStartTime: 1000\n; Partition: 1 north\n; Partition: 2 south\n"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8", newline="")
    return path


def swf(
    job: int, *, run: int = 10, status: int = 1, alloc: int = 2, req: int = 4, wish: int = 60, site: int = 1
) -> str:
    return f"{job} {100 + job} 5 {run} {alloc} -1 -1 {req} {wish} 2048 {status} 7 3 -1 1 {site} -1 -1"
