from __future__ import annotations

from lmcache_core import Event, EventType
from lmcache_core.telemetry.messages import L2ConnectorUsageMessage, ModelUsageMessage, MPInstanceMessage
from lmcache_core.telemetry.models import KnownModels


def registered(**changed: object) -> Event:
    metadata = {
        "model_name": "Qwen/Qwen3-8B",
        "world_size": 2,
        "kv_dtypes": ["bfloat16", "float8_e4m3fn"],
        "kv_shapes": [[2, 32, 256, 1024], [2, 8, 256, 512]],
        "attn_windows": [-1, 8],
        "group_kinds": ["attention", "attention"],
        "use_mla": False,
        "model_type": "qwen3",
    }
    return Event(EventType.MP_KV_REGISTERED, 0.0, {**metadata, **changed})


def test_a_model_is_described_as_lmcache_did() -> None:
    assert KnownModels().register(registered()) == MPInstanceMessage(
        model_name="Qwen/Qwen3-8B",
        world_size=2,
        kv_dtypes="bfloat16,float8_e4m3fn",
        kv_shapes="2x32x256x1024;2x8x256x512",
        attn_windows="-1,8",
        attn_arch="full+swa",
        use_mla=False,
        model_type="qwen3",
    )


def test_once_for_each_model_and_world_size() -> None:
    models = KnownModels()
    found = [models.register(registered(world_size=size)) for size in (1, 1, 2, 1, 2)]

    assert [message is not None for message in found] == [True, False, True, False, False]


def test_a_models_attention_becomes_the_tag_of_its_counters() -> None:
    models = KnownModels()
    before = models.tags(ModelUsageMessage, ("Qwen/Qwen3-8B",))
    models.register(registered())

    assert before == {"model_name": "Qwen/Qwen3-8B", "attn_arch": "unknown"}
    assert models.tags(ModelUsageMessage, ("Qwen/Qwen3-8B",))["attn_arch"] == "full+swa"


def test_a_private_model_keeps_its_attention_and_loses_its_name() -> None:
    models = KnownModels()
    message = models.register(registered(model_name="/srv/models/secret", kv_shapes="1x2", kv_dtypes="float16"))

    assert message is not None
    assert (message.model_name, message.kv_shapes, message.kv_dtypes) == ("private", "1x2", "float16")
    assert models.tags(ModelUsageMessage, ("/srv/models/secret",)) == {
        "model_name": "private",
        "attn_arch": "full+swa",
    }


def test_other_stays_other() -> None:
    assert KnownModels().tags(ModelUsageMessage, ("other",)) == {
        "model_name": "other",
        "attn_arch": "other",
    }


def test_a_shape_of_one_group_may_be_flat() -> None:
    message = KnownModels().register(registered(kv_shapes=(2, 32, 256, 1024)))
    assert message is not None
    assert message.kv_shapes == "2x32x256x1024"


def test_an_empty_registration_is_told_as_unknown() -> None:
    message = KnownModels().register(Event(EventType.MP_KV_REGISTERED, 0.0, {}))
    assert message == MPInstanceMessage("private", 1, "", "", "", "unknown", use_mla=False, model_type="")


def test_the_other_tags_are_the_events_own() -> None:
    models = KnownModels()
    assert models.tags(L2ConnectorUsageMessage, ("redis",)) == {"l2_name": "redis"}
    assert models.tags(L2ConnectorUsageMessage, (None,)) == {"l2_name": "unknown"}
    assert models.tags(L2ConnectorUsageMessage, ("redis://me:hunter2@h",)) == {"l2_name": "private"}
