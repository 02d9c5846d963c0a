"""One type per field for ever (field fault I3)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest

from lmcache_core import UsageMessage, __version__
from lmcache_core.telemetry.payload import UsageIdentity, build_usage_payload, encode, fit

IDENTITY = UsageIdentity(session_id="s", machine_id="m", deployment_mode="single_process")


@dataclass(frozen=True)
class AcmeMessage(UsageMessage):
    count: int
    share: float
    name: str
    flag: bool
    histogram: dict[str, int]


def acme(**changed: object) -> AcmeMessage:
    values = {"count": 1, "share": 0.5, "name": "x", "flag": True, "histogram": {"1": 2, "+Inf": 0}}
    return AcmeMessage(**{**values, **changed})


def test_a_payload_is_the_stamps_and_the_fields() -> None:
    assert build_usage_payload(acme(), IDENTITY) == {
        "message_type": "AcmeMessage",
        "schema_version": 1,
        "lmcache_version": __version__,
        "deployment_mode": "single_process",
        "session_id": "s",
        "machine_id": "m",
        "count": 1,
        "share": 0.5,
        "name": "x",
        "flag": True,
        "histogram": {"1": 2, "+Inf": 0},
    }


def test_the_bytes_are_json() -> None:
    payload = build_usage_payload(acme(), IDENTITY)
    assert json.loads(encode(payload)) == payload


@pytest.mark.parametrize(
    ("value", "kind", "fitted"), [(0, "float", 0.0), (3.0, "int", 3), (0.0, "int", 0), (2**63 - 1, "int", 2**63 - 1)]
)
def test_numbers_are_written_with_the_declared_type(value: float, kind: str, fitted: float) -> None:
    found = fit(value, kind, "x")
    assert (found, type(found)) == (fitted, type(fitted))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "int"), (True, "float"), (math.nan, "float"), (math.inf, "int"), (None, "int"), (2**63, "int"), ("1", "int"), (1.5, "int"),
     (1, "bool"), (1, "str"), (None, "str"), ([], "dict[str, int]"), ({1: 1}, "dict[str, int]"), ({"1": 1.5}, "dict[str, int]"), (1, "tuple")],
)  # fmt: skip
def test_what_does_not_fit_is_refused(value: object, kind: str) -> None:
    with pytest.raises(ValueError):
        fit(value, kind, "x")


def test_a_refusal_names_message_and_field_and_not_the_value() -> None:
    with pytest.raises(ValueError) as caught:
        build_usage_payload(acme(count="hunter2"), IDENTITY)
    assert str(caught.value) == "AcmeMessage.count: a value of type 'str' does not fit int"


def test_text_is_bounded() -> None:
    assert len(build_usage_payload(acme(name="x" * 10_000), IDENTITY)["name"]) == 256
