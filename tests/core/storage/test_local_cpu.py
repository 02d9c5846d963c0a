from tests.core.storage.tenant_tier import NAMESPACE

from lmcache_core.events.bus import EventBus
from lmcache_core.events.journal import Journal
from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena, Block
from lmcache_core.metrics.families import CacheMetrics
from lmcache_core.storage.local_cpu import LocalCPUBackend

FRAME_BYTES = 100


def backend(*, use_hot: bool, chunks: int = 4) -> LocalCPUBackend:
    arena = Arena(chunks * ALIGNMENT_BYTES)
    metrics = CacheMetrics()
    journal = Journal(EventBus(metrics))
    return LocalCPUBackend(arena, use_hot=use_hot, metrics=metrics, journal=journal)


def fill(local: LocalCPUBackend, digest: bytes) -> None:
    blocks: list[Block] = local.reserve(1, FRAME_BYTES)
    local.commit(NAMESPACE, [digest], blocks)
    local.arena.release(blocks)


def test_chunks_kept_for_a_holder_are_gone_after_the_hold() -> None:
    """The peer's fallback leaves them behind, served and never evicted."""
    local = backend(use_hot=False)
    local.hold("check:x")
    fill(local, b"a")

    cleared = local.release_hold("check:x")

    assert (cleared.chunks, local.chunks, local.arena.used_bytes, local.use_hot) == (1, 0, 0, False)


def test_chunks_stay_while_another_holder_is_left() -> None:
    local = backend(use_hot=False)
    local.hold("check:x")
    local.hold("check:y")
    fill(local, b"a")

    local.release_hold("check:x")

    assert (local.chunks, local.use_hot) == (1, True)


def test_chunks_stay_when_the_operator_wants_them() -> None:
    local = backend(use_hot=True)
    local.hold("check:x")
    fill(local, b"a")

    local.release_hold("check:x")

    assert (local.chunks, local.use_hot) == (1, True)


def test_operators_switch_during_a_hold_is_what_comes_back() -> None:
    local = backend(use_hot=False)
    local.hold("check:x")
    local.set_use_hot(True)
    fill(local, b"a")

    local.release_hold("check:x")

    assert (local.chunks, local.use_hot) == (1, True)


def test_operators_switch_off_clears() -> None:
    local = backend(use_hot=True)
    fill(local, b"a")

    assert local.set_use_hot(False).chunks == 1
    assert local.arena.used_bytes == 0


def test_release_of_a_hold_nobody_has_changes_nothing() -> None:
    local = backend(use_hot=True)
    fill(local, b"a")

    local.release_hold("check:x")

    assert local.chunks == 1


def test_first_writer_of_a_chunk_wins() -> None:
    local = backend(use_hot=True)
    fill(local, b"a")
    first = local.lease_run([b"a"])[0]

    fill(local, b"a")

    assert local.lease_run([b"a"])[0] is first
    assert local.arena.used_bytes == ALIGNMENT_BYTES


def test_least_recently_used_goes_first() -> None:
    local = backend(use_hot=True, chunks=2)
    fill(local, b"a")
    fill(local, b"b")
    local.arena.release(local.lease_run([b"a"]))

    fill(local, b"c")

    assert local.missing([b"a", b"b", b"c"]) == [1]


def test_reserve_gives_fewer_when_all_is_leased() -> None:
    local = backend(use_hot=True, chunks=2)
    fill(local, b"a")
    local.lease_run([b"a"])

    assert len(local.reserve(2, FRAME_BYTES)) == 1
