"""What the machine gives: memory, disk, packages and the HTTP port."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from lmcache_core.cli.finding import Finding, fail, ok, warn
from lmcache_core.config.model import CoreConfig

_GIB = 1 << 30
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def examine_machine(values: CoreConfig) -> Iterator[Finding]:
    """Look at everything that the configuration asks of the machine; changes nothing."""
    yield from examine_memory(values.max_local_cpu_size)
    yield from examine_disk(values)
    yield from examine_packages()
    yield from examine_http(values)


def examine_memory(wanted_gib: float, meminfo: Path = _MEMINFO, limit: Path = _CGROUP_LIMIT) -> Iterator[Finding]:
    """Compare ``max_local_cpu_size`` with what there is.

    Args:
        wanted_gib: ``max_local_cpu_size``.
        meminfo: Linux's table of memory.
        limit: The control group's limit in bytes, or ``max``.
    """
    subject = "memory"
    try:
        available, total = _memory_bytes(meminfo)
    except (OSError, ValueError, KeyError):
        yield warn(subject, f"{meminfo} cannot be read, so max_local_cpu_size = {wanted_gib:g} GiB was not compared")
        return
    capped = _limit_bytes(limit)
    total = total if capped is None else min(total, capped)
    available = min(available, total)
    asked = f"max_local_cpu_size = {wanted_gib:g} GiB"
    if wanted_gib * _GIB > total:
        yield fail(subject, f"{asked} is more than the {total / _GIB:.1f} GiB there are; lower it")
    elif wanted_gib * _GIB > available:
        yield warn(subject, f"{asked} is more than the {available / _GIB:.1f} GiB that are free now; lower it")
    else:
        yield ok(subject, f"{asked} of {available / _GIB:.1f} GiB that are free")


def examine_disk(values: CoreConfig) -> Iterator[Finding]:
    """Compare ``max_local_disk_size`` with what is free, and look whether the folder can be written."""
    folder = values.local_disk_path
    if folder is None:
        return
    subject = "local_disk"
    existing = _nearest_folder(folder)
    if not existing.is_dir():
        yield fail(subject, f"{existing} is no folder; name another one")
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield fail(subject, f"{existing} cannot be written by this user; change its permissions or name another folder")
    else:
        free_gib = shutil.disk_usage(existing).free / _GIB
        asked = f"max_local_disk_size = {values.max_local_disk_size:g} GiB"
        if values.max_local_disk_size > free_gib:
            yield warn(subject, f"{asked} is more than the {free_gib:.1f} GiB that are free in {existing}; lower it")
        else:
            yield ok(subject, f"{asked} of {free_gib:.1f} GiB that are free in {existing}")


def examine_packages() -> Iterator[Finding]:
    """Look whether torch is there, without importing it."""
    if importlib.util.find_spec("torch") is None:
        yield warn("torch", "is not installed, so no engine can use the cache here; pip install 'lmcache-core[torch]'")
    else:
        yield ok("torch", "is installed")


def examine_http(values: CoreConfig) -> Iterator[Finding]:
    """Look whether the HTTP pages can be served."""
    if not values.internal_api_server_enabled:
        return
    subject = "http"
    lacking = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if lacking:
        yield fail(subject, f"needs {', '.join(lacking)}; pip install 'lmcache-core[http]'")
        return
    host, port = values.internal_api_server_host, values.internal_api_server_port_start
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while ")[0].lower()
        yield warn(
            subject,
            f"cannot listen on {host} port {port}: {reason}; a cache may be running already (see: lmcachectl health), "
            "else choose another internal_api_server_port_start",
        )
    else:
        yield ok(subject, f"{host} port {port} is free")


def _memory_bytes(meminfo: Path) -> tuple[int, int]:
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    available, total = (int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    return available, total


def _limit_bytes(limit: Path) -> int | None:
    try:
        return int(limit.read_text())
    except (OSError, ValueError):
        return None  # no control group, or "max"


def _nearest_folder(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
