from __future__ import annotations

from tests.plugins.vllm.conftest import Answers

from lmcache_plugins.vllm.lookups import RankLookups


def test_the_smallest_answer_counts() -> None:
    ranks = RankLookups([Answers(16), Answers(8)])
    pending = ranks.lookup_async([1], salt="s", variant="v", request_id="r")
    assert (pending.done(), pending.result(0.0)) == (True, 8)


def test_every_rank_is_asked_alike() -> None:
    caches = [Answers(16), Answers(8)]
    RankLookups(caches).lookup_async([1], salt="s", variant="v", request_id="r")
    assert [cache.asked for cache in caches] == [[([1], "s", "v", "r")]] * 2


def test_it_is_done_when_every_rank_is() -> None:
    caches = [Answers(16), Answers(None)]
    pending = RankLookups(caches).lookup_async([1])
    assert not pending.done()
    caches[1].pending[0].tokens = 8
    assert pending.done()


def test_giving_up_reaches_every_rank() -> None:
    caches = [Answers(16), Answers(8)]
    RankLookups(caches).lookup_async([1]).cancel()
    assert [cache.pending[0].cancelled for cache in caches] == [True, True]


def test_ranks_of_different_chunks_agree_on_none() -> None:
    caches = [Answers(), Answers()]
    assert RankLookups(caches).chunk_tokens == 8
    caches[1].chunk_tokens = 0
    assert RankLookups(caches).chunk_tokens == 0


class Clears:
    """A cache that gives one answer to a clear."""

    def __init__(self, answer: list[str]) -> None:
        self._answer = answer

    def clear(self) -> list[str]:
        return self._answer


def test_a_clear_that_a_rank_did_not_answer_has_no_answer() -> None:
    assert list(RankLookups([Clears(["a"]), Clears([])]).clear()) == []  # type: ignore[list-item]


def test_a_clear_tells_of_every_rank() -> None:
    assert list(RankLookups([Clears(["a"]), Clears(["b"])]).clear()) == ["a", "b"]  # type: ignore[list-item]


def test_the_rest_is_kept_where_every_rank_keeps_it() -> None:
    caches = [Answers(), Answers()]
    caches[0].save_unfull_chunk = True
    assert not RankLookups(caches).save_unfull_chunk
    caches[1].save_unfull_chunk = True
    assert RankLookups(caches).save_unfull_chunk
