"""The log of ``lmcachectl serve``: a line for people or an object for programs, each record on a line of its own."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from types import MappingProxyType, TracebackType
from typing import Final, TextIO

_HELD_RECORDS: Final = 1000
_NEVER: Final = logging.CRITICAL + 1
_PACKAGES: Final = ("lmcache_core", "lmcache_plugins")
_PLAIN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_SCALARS: Final = (str, int, float, bool, type(None))


class ServerLog:
    """Writes log records to stderr while a server runs, as a context manager.

    How they are written is configured, and reading the configuration logs already. So records are
    held until `begin`; where that is never called they are written as text at the end.

    Args:
        stream: Where the log goes; default stderr.
        debug: Show tracebacks of a start that failed too.
    """

    def __init__(self, stream: TextIO | None = None, *, debug: bool = False) -> None:
        self._out = logging.StreamHandler(sys.stderr if stream is None else stream)
        self._out.setFormatter(TextFormatter(traces=debug))
        self._held = logging.handlers.MemoryHandler(_HELD_RECORDS, _NEVER, self._out)
        self._levels: dict[str, int] = {}

    def begin(self, log_format: str, level: str) -> None:
        """Write what was held, and everything from now on at once.

        Args:
            log_format: ``text`` or ``json``.
            level: Least severe level of the project's own records.
        """
        self._out.setFormatter(FORMATTERS[log_format]())
        for name in _PACKAGES:
            logging.getLogger(name).setLevel(level)
        self._held.close()
        logging.getLogger().removeHandler(self._held)
        logging.getLogger().addHandler(self._out)

    def __enter__(self) -> ServerLog:
        self._levels = {name: logging.getLogger(name).level for name in _PACKAGES}
        logging.getLogger().addHandler(self._held)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        root = logging.getLogger()
        self._held.close()
        root.removeHandler(self._held)
        root.removeHandler(self._out)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z WARNING lmcache_core.storage.guard: RemoteBackend: ...``; then a traceback, indented.

    A message is one line whatever is in it: names that a client sent cannot look like another record.

    Args:
        traces: Whether tracebacks are written.
    """

    def __init__(self, *, traces: bool = True) -> None:
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        line = f"{_when(record)} {record.levelname} {record.name}: {_on_one_line(record.getMessage())}"
        trace = _trace(self, record) if self._traces else ""
        return line if not trace else line + "".join(f"\n  {part}" for part in trace.splitlines())


class JsonFormatter(logging.Formatter):
    """One object a record: `time`, `level`, `logger`, `thread`, `message`, `traceback` and fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        shown: dict[str, object] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        trace = _trace(self, record)
        if trace:
            shown["traceback"] = trace
        own = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        return json.dumps({**_as_json(own), **shown}, ensure_ascii=False, default=str)


FORMATTERS: Final[Mapping[str, type[logging.Formatter]]] = MappingProxyType(
    {"text": TextFormatter, "json": JsonFormatter}
)
"""What `log_format` may be."""


def _when(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _on_one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _as_json(own: Mapping[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, (*_SCALARS, list, dict)) else str(value) for name, value in own.items()}
