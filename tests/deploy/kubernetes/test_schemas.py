"""Every manifest is what its schema allows, and has no field that nobody reads."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "data/deploy/servicemonitor-v1.schema.json").read_text())
VERSIONS = ("1.28", "1.37")
"""Of Kubernetes: an old one that is still run, and the newest whose schemas are here."""


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_it(manifest: Any, version: str) -> None:
    assert kubernetes_validate.validate(manifest.text, version, strict=True) == version


def test_a_misspelt_field_would_be_seen(objects: dict[str, Any]) -> None:
    wrong = copy.deepcopy(objects["server/daemonset"])
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}

    with pytest.raises(jsonschema.ValidationError, match="livenessprobe"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_operator_takes_its_service_monitor(objects: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(objects["server/servicemonitor"])


@pytest.mark.parametrize(
    ("field", "value"), [("intervall", "15s"), ("interval", "15 s"), ("port", 6999), ("scheme", "ftp")]
)
def test_a_wrong_service_monitor_would_be_seen(objects: dict[str, Any], field: str, value: object) -> None:
    wrong = copy.deepcopy(objects["server/servicemonitor"])
    wrong["spec"]["endpoints"][0][field] = value

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(wrong)
