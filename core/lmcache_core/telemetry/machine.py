"""What kind of machine this is, from files that any process may read. Runs no program, imports no driver."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from lmcache_core.telemetry.messages import EnvMessage

_PROVIDERS = (
    ("amazon", "aws"),
    ("google", "gcp"),
    ("microsoft", "azure"),
    ("alibaba", "alibaba"),
    ("oracle", "oracle"),
    ("digitalocean", "digitalocean"),
    ("openstack", "openstack"),
    ("hetzner", "hetzner"),
    ("tencent", "tencent"),
)
_UNKNOWN = "unknown"
_RELEASE = re.compile(r"[0-9.]*")


def describe_machine(environ: Mapping[str, str], root: Path = Path("/")) -> EnvMessage:
    """Describe the machine; what cannot be read is ``unknown``, ``""`` or 0.

    Args:
        environ: Tells a pod by ``KUBERNETES_SERVICE_HOST``.
        root: Where ``proc`` and ``sys`` are.
    """
    cpu = _fields(root / "proc/cpuinfo")
    gpus = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    return EnvMessage(
        provider=_provider(root),
        num_cpu=os.cpu_count() or 0,
        cpu_type=cpu.get("model name", platform.processor()),
        cpu_family_model_stepping=",".join(cpu.get(key, "") for key in ("cpu family", "model", "stepping")),
        total_memory=_kib(_fields(root / "proc/meminfo").get("MemTotal", "")) * 1024,
        architecture=f"{platform.machine()},{platform.architecture()[0]}",
        platforms=f"{platform.system()}-{_numbers_of(platform.release())}",
        gpu_count=len(gpus),
        gpu_type=_fields(gpus[0]).get("Model", _UNKNOWN) if gpus else "",
        gpu_memory_per_device=0,
        source=_source(environ, root),
    )


def _provider(root: Path) -> str:
    vendor = _text(root / "sys/class/dmi/id/sys_vendor").lower()
    return next((name for word, name in _PROVIDERS if word in vendor), _UNKNOWN)


def _source(environ: Mapping[str, str], root: Path) -> str:
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    inside = (root / ".dockerenv").exists() or (root / "run/.containerenv").exists()
    return "container" if inside else "host"


def _fields(path: Path) -> dict[str, str]:
    """Read ``name : value`` lines; the first of each name counts."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _numbers_of(release: str) -> str:
    """Keep the numbers that a release begins with; what a builder added may name him."""
    found = _RELEASE.match(release)
    return found[0] if found is not None else ""


def _kib(text: str) -> int:
    digits = text.removesuffix("kB").strip()
    return int(digits) if digits.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
