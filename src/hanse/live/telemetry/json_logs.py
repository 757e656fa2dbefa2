"""Structured logs: one JSON object per line on standard error, for collectors and for grep."""

import json
import logging
import sys
from datetime import UTC, datetime

FIELDS = "hanse_fields"
"""The attribute of a log record that holds its structured fields."""


class JsonLineFormatter(logging.Formatter):
    """A formatter that writes time, level, logger, message, then the fields."""

    def __init__(self, member: str) -> None:
        super().__init__()
        self._member = member

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "at": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "member": self._member,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, FIELDS, {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(member: str, level: str = "info") -> None:
    """Send every log of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLineFormatter(member))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def log_fields(**values: object) -> dict[str, dict[str, object]]:
    """Return structured fields of a log line, for ``extra=``."""
    return {FIELDS: values}
