"""The message types: locked, sampled, allowed, documented."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lmcache_core import UsageMessage
from lmcache_core.loading import load
from lmcache_core.telemetry.messages import SCHEMA_VERSION
from lmcache_core.telemetry.payload import UsageIdentity, build_usage_payload
from lmcache_core.telemetry.schema import STAMPS, describe_message, describe_messages, reference_page
from lmcache_plugins.usage.specs import MESSAGES

DATA = Path(__file__).parents[2] / "data"
LOCK = DATA / "usage-schema.json"
SAMPLES = DATA / "usage-samples"
PAGE = Path(__file__).parents[3] / "docs/reference/usage-messages.md"
IDENTITY = UsageIdentity(
    session_id="8b3f2c1e-0c5a-4c8e-9a52-0f4f5d1c7a10",
    machine_id="1f0c9b7e-5d3a-4b6f-8e21-9c7d4a2b6e03",
    deployment_mode="mp_server",
)
HOW = "run: lmcachectl usage schema > tests/data/usage-schema.json, and look at the difference"


def sample(message: type[UsageMessage]) -> UsageMessage:
    """The committed sample's values, as the message."""
    found = json.loads((SAMPLES / f"{message.__name__}.json").read_text())
    return message(**{field.name: found[field.name] for field in dataclasses.fields(message)})


@pytest.fixture(scope="module")
def lock() -> dict[str, Any]:
    return json.loads(LOCK.read_text())


def test_no_field_changes_its_type_or_meaning_within_a_version(lock: dict[str, Any]) -> None:
    """B.37: whoever changes one raises `SCHEMA_VERSION` and commits a new lock."""
    now = describe_messages(MESSAGES)
    changed = [
        f"{name}.{field}"
        for name, message in lock["messages"].items()
        for field, locked in message["fields"].items()
        if now["messages"].get(name, {}).get("fields", {}).get(field) != locked
    ]
    changed += [
        f"{name}: {key}"
        for name, message in lock["messages"].items()
        for key in ("endpoint", "tags")
        if now["messages"].get(name, {}).get(key) != message[key]
    ]
    changed += [name for name, stamp in lock["stamps"].items() if now["stamps"].get(name) != stamp]
    assert changed == [] or lock["schema_version"] < SCHEMA_VERSION


def test_the_lock_has_every_field(lock: dict[str, Any]) -> None:
    assert lock == describe_messages(MESSAGES), HOW


def test_the_default_plugins_declare_exactly_these() -> None:
    declared = {declared.value for declared in load(environ={}, third_party=False).registry.usage_messages()}
    assert declared == set(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_the_sample_is_what_is_sent(message: type[UsageMessage]) -> None:
    committed = json.loads((SAMPLES / f"{message.__name__}.json").read_text())
    assert build_usage_payload(sample(message), IDENTITY) == {**committed, "lmcache_version": build_version()}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_payload_is_flat_and_its_histograms_are_by_upper_bound(message: type[UsageMessage]) -> None:
    for name, value in build_usage_payload(sample(message), IDENTITY).items():
        assert isinstance(value, int | float | str | bool | dict), name
        if isinstance(value, dict) and "|" not in "".join(value):
            bounds = list(value)
            assert bounds[-1] == "+Inf", name
            assert [float(bound) for bound in bounds] == sorted(float(bound) for bound in bounds), name


ALLOWED = {
    "EnvMessage": "provider num_cpu cpu_type cpu_family_model_stepping total_memory architecture platforms gpu_count gpu_type gpu_memory_per_device source",
    "EngineMessage": "chunksize local_device max_local_cache_size remote_schemes remote_serde pipelined_backend save_decode_cache enable_blending "
    "blend_recompute_ratio blend_min_tokens model_name world_size worker_id kv_dtype kv_shape",
    "MetadataMessage": "start_time duration",
    "MPServerMessage": "lmcache_version chunk_size hash_algorithm engine_type enable_segmented_prefix enable_dedup_content supported_transfer_mode "
    "separate_object_groups max_gpu_workers max_cpu_workers p2p_enabled l1_size_bytes l1_medium l1_shm_enabled eviction_policy l2_adapter_types l2_serde_types "
    "l2_store_policy l2_prefetch_policy",
    "MPInstanceMessage": "model_name world_size kv_dtypes kv_shapes attn_windows attn_arch use_mla model_type",
}
"""Text and facts of the machine: only these. Everything else is a number, a tag, or a histogram."""


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_only_allowed_fields_hold_text(message: type[UsageMessage]) -> None:
    fields = describe_message(message)["fields"]
    if message.__name__ in ALLOWED:
        assert set(fields) == set(ALLOWED[message.__name__].split())
    else:
        text = {name for name, field in fields.items() if field["type"] == "str"}
        assert text <= {*message.TAGS, "gap_reason"}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_no_field_could_identify(message: type[UsageMessage]) -> None:
    forbidden = re.compile(
        r"url|host|path|address|instance_id|prompt|token_ids|hash(?!_algorithm)|salt|user|email|(^|_)ip($|_)|(^|_)key$"
    )
    assert [name for name in describe_message(message)["fields"] if forbidden.search(name)] == []


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_no_message_has_a_field_of_the_stamps(message: type[UsageMessage]) -> None:
    assert set(describe_message(message)["fields"]) & set(STAMPS) <= {"lmcache_version"}


def test_the_page_is_made_from_the_messages() -> None:
    assert PAGE.read_text() == reference_page(MESSAGES), (
        "run: lmcachectl usage schema --markdown > docs/reference/usage-messages.md"
    )


def test_a_field_without_a_meaning_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class AcmeMessage(UsageMessage):
        """Counts.

        Attributes:
            a: One thing.
        """

        a: int
        b: int

    with pytest.raises(ValueError) as caught:
        describe_message(AcmeMessage)
    assert str(caught.value) == "usage message AcmeMessage: field 'b' has no line under Attributes"


def test_a_field_of_another_type_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class AcmeMessage(UsageMessage):
        """Counts.

        Attributes:
            a: One thing.
        """

        a: tuple[int, ...]

    with pytest.raises(ValueError) as caught:
        describe_message(AcmeMessage)
    assert str(caught.value) == "usage message AcmeMessage: field 'a' is of type 'tuple[int, ...]'"


def build_version() -> str:
    from lmcache_core import __version__

    return __version__
