from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lmcache_plugins.vllm.records import Scheduled
from lmcache_plugins.vllm.views import block_ids_of, scheduled_of, view_of


def request(**other: Any) -> Any:
    return SimpleNamespace(
        **{
            "request_id": "r",
            "all_token_ids": [1, 2, 3],
            "num_prompt_tokens": 2,
            "num_preemptions": 1,
            "cache_salt": None,
            "lora_request": None,
            "mm_features": [],
            **other,
        }
    )


def test_a_plain_request() -> None:
    view = view_of(request())
    assert (view.request_id, view.tokens, view.prompt_tokens, view.preemptions) == ("r", [1, 2, 3], 2, 1)
    assert (view.salt, view.variant, view.refusal, view.reads) == ("", "", "", True)


def test_the_salt_is_the_tenants() -> None:
    assert view_of(request(cache_salt="tenant")).salt == "tenant"


def test_a_lora_adapter_is_a_variant_by_name_and_path() -> None:
    lora = SimpleNamespace(lora_name="sql", lora_path="/adapters/sql-2")
    assert view_of(request(lora_request=lora)).variant == "lora sql /adapters/sql-2"


@pytest.mark.parametrize(
    ("attribute", "refusal"),
    [
        ({"mm_features": [object()]}, "multimodal input"),
        ({"prompt_embeds": object()}, "prompt embeddings"),
        ({"resumable": True}, "streaming input"),
    ],
)
def test_what_tokens_do_not_name_is_refused(attribute: dict[str, Any], refusal: str) -> None:
    assert view_of(request(**attribute)).refusal == refusal


def test_a_request_may_want_every_token_computed() -> None:
    assert not view_of(request(skip_reading_prefix_cache=True)).reads


def test_blocks_are_those_of_the_only_group() -> None:
    assert block_ids_of(SimpleNamespace(get_block_ids=lambda: ([4, 5],))) == ([4, 5],)


def test_a_step_is_new_and_known_requests() -> None:
    output = SimpleNamespace(
        num_scheduled_tokens={"new": 7, "known": 1, "back": 3},
        scheduled_new_reqs=[SimpleNamespace(req_id="new", num_computed_tokens=4, block_ids=([1, 2],))],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=["known", "back"],
            num_computed_tokens=[9, 0],
            new_block_ids=[None, ([3],)],
            resumed_req_ids={"back"},
        ),
    )
    assert scheduled_of(output) == [
        Scheduled("new", 4, 7, ([1, 2],), replaces=True),
        Scheduled("known", 9, 1, (), replaces=False),
        Scheduled("back", 0, 3, ([3],), replaces=True),
    ]
