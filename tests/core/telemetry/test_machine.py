from __future__ import annotations

import re
from pathlib import Path

from lmcache_core.telemetry.machine import describe_machine


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_can_be_read_is_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        proc__cpuinfo="processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: ACME 9000\nstepping\t: 2\n",
        proc__meminfo="MemTotal:       1024 kB\nMemFree: 1 kB\n",
        sys__class__dmi__id__sys_vendor="Amazon EC2\n",
        proc__driver__nvidia__gpus__a__information="Model: \t\t NVIDIA H200\nIRQ: 1\n",
        proc__driver__nvidia__gpus__b__information="Model: \t\t NVIDIA H200\n",
    )
    found = describe_machine({}, tmp_path)

    assert (found.provider, found.cpu_type, found.cpu_family_model_stepping) == ("aws", "ACME 9000", "25,1,2")
    assert (found.total_memory, found.gpu_count, found.gpu_type, found.source) == (1 << 20, 2, "NVIDIA H200", "host")


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = describe_machine({}, tmp_path)
    assert (found.provider, found.total_memory, found.gpu_count, found.gpu_type) == ("unknown", 0, 0, "")
    assert found.cpu_family_model_stepping == ",,"


def test_a_pod_and_a_container_are_told_apart(tmp_path: Path) -> None:
    assert describe_machine({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path).source == "kubernetes"
    write(tmp_path, **{".dockerenv": ""})
    assert describe_machine({}, tmp_path).source == "container"


def test_of_the_release_only_numbers_are_told() -> None:
    assert re.fullmatch(r"Linux-[0-9.]+", describe_machine({}).platforms)
