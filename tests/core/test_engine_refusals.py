"""The gate, and calls that are wrong: a no-op, a sentence, a count."""

from __future__ import annotations

import pytest
import torch
from tests.engine_calls import TOKENS, MakeRig, forget_local, retrieved, some_kv, until
from tests.memory_store import CHUNK_TOKENS

from lmcache_core import LayoutError

# -- gate and refusals ----------------------------------------------------------


def test_unhealthy_cache_answers_with_no_ops(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))
    rig.healthy = False

    assert rig.engine.store([1, 2, 3, 4], some_kv(4)) == 0
    assert rig.engine.lookup(TOKENS) == 0
    assert retrieved(rig, TOKENS)[0] == [False] * 10
    assert [rig.sample("degraded_requests_total", operation=name) for name in ("store", "lookup", "retrieve")] == [
        1,
        1,
        1,
    ]


def test_unhealthy_warning_is_rate_limited(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    rig = make_rig()
    rig.healthy = False
    for _ in range(100):
        rig.engine.lookup(TOKENS)

    assert [record.getMessage() for record in caplog.records] == [
        "the cache is unhealthy, lookup is skipped and the engine recomputes (at most one such line in 10 s)"
    ]


@pytest.mark.parametrize(
    ("kv", "sentence"),
    [
        (torch.zeros(2, 2, 9, 8), "kv must have shape [2, 2, 10, 8] for 10 tokens, got [2, 2, 9, 8]"),
        (torch.zeros(2, 2, 10, 8, dtype=torch.float16), "kv must be float32 as registered, got float16"),
        ([1.0], "kv must be a torch tensor, got list"),
    ],
)
def test_wrong_tensor_is_refused_in_a_sentence(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture, kv: object, sentence: str
) -> None:
    rig = make_rig()

    assert rig.engine.store(TOKENS, kv) == 0
    assert caplog.messages == [f"store refused: {sentence} (at most one such line in 10 s)"]
    assert rig.sample("request_errors_total", operation="store", reason="LayoutError") == 1
    assert rig.arena.used_bytes == 0


def test_wrong_tokens_are_a_counted_miss(make_rig: MakeRig) -> None:
    rig = make_rig()

    assert rig.engine.lookup([-1] * 4) == 0
    assert rig.sample("request_errors_total", operation="lookup", reason="ValueError") == 1


def test_wrong_out_tensor_is_all_false(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS, some_kv(10))

    assert not rig.engine.retrieve(TOKENS, torch.zeros(1)).any()


def test_copy_that_fails_half_way_leaves_nothing_behind(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(stores=[])
    monkeypatch.setattr(rig.engine._adapter(CHUNK_TOKENS), "gather", refuse_copy)

    assert rig.engine.store(TOKENS, some_kv(10)) == 0
    assert rig.arena.used_bytes == 0
    assert rig.local.chunks == 0


def refuse_copy(*_: object) -> None:
    raise RuntimeError("cuda error")


def test_scatter_that_fails_gives_the_prefix_before_it(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    rig.engine.store(TOKENS[:8], some_kv(8))
    forget_local(rig)
    scatter = rig.engine._adapter(CHUNK_TOKENS).scatter

    def fail_at_4(payload: memoryview, kv: torch.Tensor, start: int) -> None:
        if start == CHUNK_TOKENS:
            raise RuntimeError("cuda error")
        scatter(payload, kv, start)

    monkeypatch.setattr(rig.engine._adapter(CHUNK_TOKENS), "scatter", fail_at_4)

    assert retrieved(rig, TOKENS[:8])[0] == [True] * 4 + [False] * 4
    assert until(lambda: rig.arena.used_bytes == 0 or rig.local.chunks > 0)


def test_layout_error_is_a_value_error() -> None:
    assert issubclass(LayoutError, ValueError)


@pytest.mark.parametrize("healthy", [True, False])
def test_one_number_instead_of_tokens_is_a_miss(make_rig: MakeRig, healthy: bool) -> None:
    rig = make_rig()
    rig.healthy = healthy

    assert rig.engine.retrieve(torch.tensor(3), some_kv(4)).tolist() == []
    assert rig.engine.lookup(torch.tensor(3)) == 0
    assert rig.engine.store(torch.tensor(3), some_kv(4)) == 0
