"""The probes in the manifest ask for pages and services that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/kubernetes-probes.md"
MANIFESTS = [
    yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
]
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
ASKED = {"livenessProbe": "livez", "readinessProbe": "readyz", "startupProbe": "startupz"}


def test_there_is_a_manifest_for_each_protocol() -> None:
    assert [sorted(set(manifest["livenessProbe"]) & {"httpGet", "grpc"}) for manifest in MANIFESTS] == [
        ["httpGet"],
        ["grpc"],
    ]


@pytest.mark.parametrize("probe", PROBES)
def test_each_probe_asks_for_its_own_page_or_service(probe: str) -> None:
    asked = [_asked(manifest[probe]) for manifest in MANIFESTS]

    assert asked == [f"/{ASKED[probe]}", ASKED[probe]]


def test_each_probe_asks_on_a_port_that_is_open() -> None:
    for manifest in MANIFESTS:
        ports = {value for port in manifest["ports"] for value in (port["name"], port["containerPort"])}
        for probe in PROBES:
            found = manifest[probe].get("httpGet") or manifest[probe]["grpc"]
            assert found["port"] in ports


def _asked(probe: dict[str, Any]) -> str:
    return str(probe["httpGet"]["path"] if "httpGet" in probe else probe["grpc"]["service"])
