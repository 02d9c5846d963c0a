"""The copies of a device, on a queue whose work is done as late as it may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lmcache_plugins.vllm.paged import PagedAdapter, PagedKV

LAYERS, BLOCKS, BLOCK_TOKENS, CHUNK_TOKENS = 3, 20, 32, 128


class LateMark:
    def __init__(self, copies: LateQueue, place: int) -> None:
        self._copies, self._place = copies, place

    def synchronize(self) -> None:
        self._copies.catch_up(self._place)


class LateQueue:
    """Does work only when somebody waits for it; what is reused before that is copied wrong."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.done = 0
        self.followed = 0

    def pinned(self, size_bytes: int) -> torch.Tensor:
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def follow_caller(self) -> None:
        self.followed += 1

    def run(self, work: Callable[[], None]) -> LateMark:
        self.work.append(work)
        return LateMark(self, len(self.work))

    def catch_up(self, place: int) -> None:
        while self.done < place:
            self.work[self.done]()
            self.done += 1


def caches_of(seed: int, *, apart: bool) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    whole = torch.randn(LAYERS, BLOCKS, 2, BLOCK_TOKENS, 16, generator=source)
    return [layer.clone() if apart else layer for layer in whole.unbind(0)]


def adapter_of(caches: list[torch.Tensor], copies: LateQueue) -> PagedAdapter:
    return PagedAdapter(caches, num_blocks=BLOCKS, block_tokens=BLOCK_TOKENS, chunk_tokens=CHUNK_TOKENS, copies=copies)


def payloads_of(adapter: PagedAdapter, count: int) -> list[memoryview]:
    return [memoryview(bytearray(adapter.block_bytes * 4)) for _ in range(count)]


@pytest.mark.parametrize("apart", [False, True])
def test_more_chunks_than_buffers_go_there_and_back(apart: bool) -> None:
    caches, others, copies = caches_of(1, apart=apart), caches_of(2, apart=apart), LateQueue()
    reading, writing = adapter_of(caches, copies), adapter_of(others, copies)
    source, target = list(range(20)), list(range(19, -1, -1))
    payloads = payloads_of(reading, 5)
    reading.gather(PagedKV([source]), [place * CHUNK_TOKENS for place in range(5)], payloads)
    for place, payload in enumerate(payloads):
        writing.scatter(payload, PagedKV([target]), place * CHUNK_TOKENS)
        payload[:] = bytes(len(payload))  # its block may be another chunk's as soon as scatter returns
    writing.finish(PagedKV([target]))
    assert copies.done == len(copies.work)
    for cache, other in zip(caches, others, strict=True):
        assert torch.equal(cache[source], other[target])


def test_blocks_before_the_first_and_behind_the_last_are_not_written() -> None:
    caches, copies = caches_of(5, apart=False), LateQueue()
    adapter = adapter_of(caches, copies)
    adapter.scatter(payloads_of(adapter, 1)[0], PagedKV([[3, 4, 5]], first_block=1), 0)
    adapter.finish(PagedKV([[3, 4, 5]]))
    fresh = caches_of(5, apart=False)
    same = [
        all(torch.equal(one[at], other[at]) for one, other in zip(caches, fresh, strict=True)) for at in (3, 4, 5, 6)
    ]
    assert same == [True, False, False, True]


def test_both_ways_follow_the_stream_that_computes() -> None:
    copies = LateQueue()
    adapter = adapter_of(caches_of(5, apart=False), copies)
    payload = payloads_of(adapter, 1)[0]
    adapter.gather(PagedKV([[1, 2, 3, 4]]), [0], [payload])
    adapter.scatter(payload, PagedKV([[1, 2, 3, 4]]), 0)
    assert copies.followed == 2


def test_a_write_on_its_way_is_complete_before_its_buffer_is_read_into() -> None:
    copies = LateQueue()
    caches, fresh = caches_of(5, apart=False), caches_of(5, apart=False)
    adapter = adapter_of(caches, copies)
    first, second = payloads_of(adapter, 2)
    adapter.scatter(first, PagedKV([[1, 2, 3, 4]]), 0)
    adapter.gather(PagedKV([[5, 6, 7, 8]]), [0], [second])
    adapter.finish(PagedKV([[]]))
    assert all(not cache[[1, 2, 3, 4]].any() for cache in caches)
    assert all(torch.equal(one[5:9], other[5:9]) for one, other in zip(caches, fresh, strict=True))
