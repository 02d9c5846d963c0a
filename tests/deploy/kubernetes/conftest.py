"""The manifests, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[3] / "examples/deploy/kubernetes"
OF_AN_OPERATOR = "monitoring.coreos.com/v1"


@dataclass(frozen=True)
class Manifest:
    """One object and where it is written."""

    name: str
    text: dict[str, Any]


def manifests() -> list[Manifest]:
    return [
        Manifest(f"{file.parent.name}/{file.stem}", found)
        for file in sorted(FOLDER.glob("*/*.yaml"))
        for found in yaml.safe_load_all(file.read_text())
    ]


@pytest.fixture(scope="session")
def objects() -> dict[str, dict[str, Any]]:
    """Every object by its folder and file."""
    return {manifest.name: manifest.text for manifest in manifests()}


@pytest.fixture(scope="session")
def server(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The server's pod."""
    return dict(objects["server/daemonset"]["spec"]["template"]["spec"])


@pytest.fixture(scope="session")
def worker(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A worker's pod."""
    return dict(objects["worker/pod"]["spec"])


def pytest_generate_tests(metafunc: Any) -> None:
    """Give each test of a `manifest` argument one case an object of Kubernetes' own."""
    if "manifest" in metafunc.fixturenames:
        own = [each for each in manifests() if each.text["apiVersion"] != OF_AN_OPERATOR]
        metafunc.parametrize("manifest", own, ids=[each.name for each in own])
