"""Fixtures of the file stores' tests."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator

import pytest

_LIMIT_BYTES = 1024 * 1024


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """Let the kernel refuse files above 1 MiB, as it does on a full disk; give the bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT_BYTES, before[1]))
    yield _LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)
