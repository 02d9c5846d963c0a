"""vLLM's objects as the connector's plain records; they are read by their attributes' names."""

from __future__ import annotations

from typing import Any

from lmcache_plugins.vllm.records import BlockIds, RequestView, Scheduled


def view_of(request: Any) -> RequestView:
    """See a request."""
    lora = request.lora_request
    return RequestView(
        request_id=request.request_id,
        tokens=request.all_token_ids,
        prompt_tokens=request.num_prompt_tokens,
        preemptions=request.num_preemptions,
        salt=request.cache_salt or "",
        variant=f"lora {lora.lora_name} {lora.lora_path}" if lora is not None else "",
        refusal=_refusal(request),
        reads=not getattr(request, "skip_reading_prefix_cache", False),
    )


def block_ids_of(blocks: Any) -> BlockIds:
    """Give a request's blocks."""
    ids: BlockIds = blocks.get_block_ids()
    return ids


def scheduled_of(output: Any) -> list[Scheduled]:
    """See what each request gets in a step."""
    steps = output.num_scheduled_tokens
    cached = output.scheduled_cached_reqs
    new = [
        Scheduled(one.req_id, one.num_computed_tokens, steps.get(one.req_id, 0), one.block_ids, replaces=True)
        for one in output.scheduled_new_reqs
    ]
    known = [
        Scheduled(
            request_id,
            computed_tokens,
            steps.get(request_id, 0),
            block_ids or (),
            replaces=request_id in cached.resumed_req_ids,
        )
        for request_id, computed_tokens, block_ids in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        )
    ]
    return new + known


def _refusal(request: Any) -> str:
    if request.mm_features:
        return "multimodal input"
    if getattr(request, "prompt_embeds", None) is not None:
        return "prompt embeddings"
    if getattr(request, "resumable", False):
        return "streaming input"
    return ""
