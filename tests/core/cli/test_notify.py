"""Telling systemd, over the socket that it names."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from lmcache_core.cli.notify import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told_in_one_datagram(tmp_path: Path, abstract: bool) -> None:
    address = f"@lmcache-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if abstract else address)
        manager.settimeout(5)

        assert notify("READY=1", "STATUS=serving\nX=1", environ={"NOTIFY_SOCKET": address})
        assert manager.recv(4096) == b"READY=1\nSTATUS=serving X=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_a_service_manager_nothing_happens(environ: dict[str, str]) -> None:
    assert not notify("READY=1", environ=environ)


def test_a_service_manager_that_is_gone_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not notify("READY=1", environ={"NOTIFY_SOCKET": str(tmp_path / "gone")})

    assert caplog.messages == [
        "NOTIFY_SOCKET: the service manager could not be told READY=1: No such file or directory"
    ]
