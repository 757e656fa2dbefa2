"""Parquet through pyarrow, an optional extra that is imported when the first Parquet file is opened, and
only here."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hanse.registry.extras import EXTRAS, install_command
from hanse.sim.traces.read_report import ReadReport, TraceError

BATCH_ROWS: Final = 512
"""Rows converted to Python values at a time."""


def import_arrow(module: str = "pyarrow") -> Any:
    """Import the module, or raise an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TraceError(
            f"Parquet files need pyarrow: {install_command(EXTRAS['pyarrow'])}, or convert the file to CSV"
        ) from error


def open_parquet(path: Path) -> Any:
    """Open a Parquet file."""
    parquet, base = import_arrow("pyarrow.parquet"), import_arrow()
    try:
        return parquet.ParquetFile(path)
    except (base.ArrowException, OSError) as error:
        raise TraceError(f"{path} is not a whole Parquet file ({error}): fetch it again") from error


def read_parquet_rows(
    path: Path, columns: list[str], report: ReadReport
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(row number from 1, values by column)``; absent columns are None. Damage ends the rows with a
    note."""
    file, base = open_parquet(path), import_arrow()
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


def find_smallest(path: Path, column: str) -> int | None:
    """Return the least value of a column, read in batches."""
    compute = import_arrow("pyarrow.compute")
    least: int | None = None
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=1 << 16, columns=[column]):
            value = compute.min(batch.column(0)).as_py()
            if value is not None and (least is None or value < least):
                least = int(value)
    return least
