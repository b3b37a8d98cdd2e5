"""From Python's own logging, which libraries use, into the one log.

It changes no level and hides nothing; the log does.
"""

from __future__ import annotations

import logging
from typing import Any

from agiwo.clock import Clock
from agiwo.telemetry.log import Log


class LogBridge(logging.Handler):
    """Passes what libraries log by Python's own logging into the one log."""

    def __init__(self, log: Log, clock: Clock, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._log = log
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields: dict[str, Any] = {"logger": record.name}
            if record.exc_info and record.exc_info[1] is not None:
                fields["exception"] = logging.Formatter().formatException(record.exc_info)
            self._log.line(record.levelname, record.getMessage(), self._clock.now(), **fields)
        except Exception:
            self.handleError(record)
