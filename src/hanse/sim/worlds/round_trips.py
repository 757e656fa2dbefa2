"""Round trips between regions: from a file of latencies, or from distances on the globe.

The file is a table with a header of region codes and one row for each region, in milliseconds
(``network/gcp_latency_matrix.csv`` of the public traces). Without it: ``BASE_MS`` and ``MS_PER_KM`` for each
kilometre of the great circle, which is light in glass on a path half as long again as the circle.
"""

import csv
import math
import os
from pathlib import Path
from typing import Final

from hanse.sim.worlds.world import RoundTrips, WorldError

BASE_MS: Final = 5.0
"""Milliseconds of a round trip within a region."""
MS_PER_KM: Final = 0.015
"""Milliseconds of round trip per kilometre: twice 1.5 km of glass at 200,000 km/s."""
EARTH_KM: Final = 6_371.0
ROWS_MAX: Final = 1_000
"""Regions of a file of latencies; it is refused beyond them."""
TRACES_VARIABLE: Final = "HANSE_TRACES"
FILE_NAME: Final = Path("network") / "gcp_latency_matrix.csv"

PLACES: Final[dict[str, tuple[float, float]]] = {
    "TW": (24.1, 120.5), "HK": (22.3, 114.2), "JP-TK": (35.7, 139.7), "JP-KN": (34.7, 135.5),
    "KR": (37.6, 127.0), "IN-MH": (19.1, 72.9), "IN-DL": (28.6, 77.2), "SG": (1.3, 103.8),
    "ID": (-6.2, 106.8), "AUS-NSW": (-33.9, 151.2), "AUS-VIC": (-37.8, 145.0), "PL": (52.2, 21.0),
    "FI": (60.6, 27.2), "ES": (40.4, -3.7), "BE": (50.4, 3.8), "GB": (51.5, -0.1), "DE": (50.1, 8.7),
    "NL": (53.4, 6.8), "CH": (47.4, 8.5), "IT-NO": (45.5, 9.2), "FR": (48.9, 2.4), "CA-QC": (45.5, -73.6),
    "CA-ON": (43.7, -79.4), "BR-CS": (-23.6, -46.6), "CL-SEN": (-33.4, -70.7),
    "US-CENT-SWPP": (41.3, -95.9), "US-CAR-SC": (33.2, -80.0), "US-MIDA-PJM": (39.0, -77.5),
    "US-TEX-ERCO": (32.8, -96.8), "US-NW-PACW": (45.6, -121.2), "US-CAL-CISO": (34.1, -118.2),
    "US-NW-PACE": (40.8, -111.9), "US-NW-NEVP": (36.2, -115.1),
}  # fmt: skip
"""Latitude and longitude of the regions of the file, in degrees, for use without it."""


def find_latencies() -> Path | None:
    """Return the file of latencies in the folder of traces, if it is at hand."""
    folders = [Path(os.environ[TRACES_VARIABLE])] if os.environ.get(TRACES_VARIABLE) else []
    for folder in (*folders, Path("../shared/traces")):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def round_trips_of(regions: tuple[str, ...], latencies: Path | None = None) -> RoundTrips:
    """Return the round trips between regions from a file of latencies, or from distances without one."""
    return distance_round_trips(regions) if latencies is None else read_latencies(latencies, regions)


def read_latencies(path: Path, regions: tuple[str, ...]) -> RoundTrips:
    """Return the round trips between regions that a file states; of equal codes the first one counts."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for _, row in zip(range(ROWS_MAX + 1), csv.reader(file), strict=False) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise WorldError(f"{path}: the latencies cannot be read: {error}") from error
    columns = rows[0][1:] if rows else []
    by_origin = {row[0]: row for row in reversed(rows[1:])}
    missing = [code for code in regions if code not in columns or code not in by_origin]
    if missing:
        known = ", ".join(dict.fromkeys(columns)) or "none"
        raise WorldError(f"{path} has no region {missing[0]!r}; its regions are {known}")
    try:
        matrix = tuple(
            tuple(round(float(by_origin[origin][1 + columns.index(to)]) * 1_000) for to in regions)
            for origin in regions
        )
    except (ValueError, IndexError, OverflowError):
        raise WorldError(f"{path}: a round trip is missing, or is not a number of milliseconds") from None
    return RoundTrips(origin=path.name, regions=regions, matrix=matrix)


def distance_round_trips(regions: tuple[str, ...]) -> RoundTrips:
    """Return the round trips between regions by their distances."""
    unknown = [code for code in regions if code not in PLACES]
    if unknown:
        raise WorldError(
            f"the place of the region {unknown[0]!r} is unknown: write network.round_trips, or use regions "
            f"of this list: {', '.join(PLACES)}"
        )
    matrix = tuple(tuple(_distance_us(here, there) for there in regions) for here in regions)
    return RoundTrips(origin="distance", regions=regions, matrix=matrix)


def _distance_us(here: str, there: str) -> int:
    """Return the round trip between two regions in microseconds, whole milliseconds as in the file."""
    (north, east), (other_north, other_east) = PLACES[here], PLACES[there]
    phi, psi = math.radians(north), math.radians(other_north)
    turn = math.radians(other_east - east)
    half = math.sin((psi - phi) / 2) ** 2 + math.cos(phi) * math.cos(psi) * math.sin(turn / 2) ** 2
    kilometres = 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))
    return round(BASE_MS + MS_PER_KM * kilometres) * 1_000
