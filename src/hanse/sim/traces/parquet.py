"""Parquet through pyarrow, which is an optional extra: loaded when the first Parquet file is opened, and
only here."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hanse.sim.traces.read_report import ReadReport, TraceError

BATCH_ROWS: Final = 512
"""Rows turned into Python values at a time."""


def arrow(module: str = "pyarrow") -> Any:
    """The module, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TraceError(
            "Parquet files need pyarrow: pip install 'hanse[report]', or convert the file to CSV"
        ) from error


def parquet_file(path: Path) -> Any:
    """An open Parquet file."""
    parquet, base = arrow("pyarrow.parquet"), arrow()
    try:
        return parquet.ParquetFile(path)
    except (base.ArrowException, OSError) as error:
        raise TraceError(f"{path} is not a whole Parquet file ({error}): fetch it again") from error


def parquet_rows(path: Path, columns: list[str], report: ReadReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """``(row number from 1, values by column)``; columns that the file lacks are None. Damage ends it with
    a note."""
    file, base = parquet_file(path), arrow()
    with file:
        present = [name for name in columns if name in file.schema_arrow.names]
        absent: dict[str, Any] = {name: None for name in columns if name not in present}
        number = 0
        try:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=present):
                values = [batch.column(place).to_pylist() for place in range(batch.num_columns)]
                names = batch.schema.names
                for row in zip(*values, strict=True):
                    number += 1
                    yield number, {**absent, **dict(zip(names, row, strict=True))}
        except (base.ArrowException, OSError) as error:
            report.note(f"the Parquet file is damaged after row {number:,} ({error}): the rest is not read")


def smallest(path: Path, column: str) -> int | None:
    """The least value of a column, batch by batch."""
    compute = arrow("pyarrow.compute")
    least: int | None = None
    with parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=1 << 16, columns=[column]):
            value = compute.min(batch.column(0)).as_py()
            if value is not None and (least is None or value < least):
                least = int(value)
    return least
