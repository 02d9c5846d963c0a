import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.engine_calls import until
from tests.memory_store import LAYOUT, Gate, MemoryStore, Rig


def kv(tokens: int) -> torch.Tensor:
    return torch.ones(LAYOUT.kv_shape(tokens))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(chunks=32, write_behind_chunks=4, stores=[MemoryStore(), MemoryStore()])
    yield made
    made.close()


def test_each_tier_gets_the_same_frames(rig: Rig) -> None:
    rig.engine.store(range(8), kv(8))
    rig.storage.flush()

    assert len(rig.stores[0].frames) == 2
    assert rig.stores[0].frames == rig.stores[1].frames


def test_one_hung_tier_does_not_hold_up_the_other(rig: Rig) -> None:
    rig.stores[0].fault = Gate("store")

    rig.engine.store(range(4), kv(4))

    assert rig.storage._writers[1].flush(5.0)
    assert len(rig.stores[1].frames) == 1


def test_flush_says_when_it_took_too_long(rig: Rig) -> None:
    rig.stores[0].fault = Gate("store")
    rig.engine.store(range(4), kv(4))

    assert rig.storage.flush(0.05) is False


def test_every_chunk_is_written_or_counted_as_lost(rig: Rig) -> None:
    gate = Gate("store")
    rig.stores[0].fault = gate
    for start in range(0, 24, 4):
        rig.engine.store(range(start, start + 4), kv(4))
    gate.entered.wait(5.0)

    rig.storage.close(0.05)
    gate.open()

    assert until(lambda: written(rig) + lost(rig) == 6)


def test_an_end_that_loses_chunks_says_so(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate("store")
    rig.stores[0].fault = gate
    rig.engine.store(range(4), kv(4))
    assert gate.entered.wait(5.0)  # the first write holds the thread, the others wait
    rig.engine.store(range(4, 12), kv(8))

    rig.storage.close(0.05)
    gate.open()

    assert "RemoteBackend-0: 2 chunk(s) were not written before the end, and are lost" in caplog.messages


def written(rig: Rig) -> float:
    return rig.sample("written_chunks_total", backend="RemoteBackend-0")


def lost(rig: Rig) -> float:
    reasons = ("stopped", "queue_full", "timeout", "error")
    return sum(rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason=reason) for reason in reasons)


def test_chunk_offered_after_stop_is_counted(rig: Rig) -> None:
    rig.storage.close(1.0)

    rig.engine.store(range(4), kv(4))

    assert rig.sample("lost_chunks_total", backend="RemoteBackend-0", reason="stopped") == 1
    assert rig.arena.blocks == rig.local.chunks


def test_a_chunk_is_offered_before_a_drain_looks_or_not_at_all(rig: Rig) -> None:
    """What is decided of a chunk, and that it waits, is one step for whoever flushes."""
    writer = rig.storage._writers[0]
    free: list[bool] = []

    class Asked:
        writes = False

        @property
        def offers(self) -> bool:
            asking = threading.Thread(target=lambda: free.append(writer._changed.acquire(blocking=False)))
            asking.start()
            asking.join()
            return False

    rig.tiers[0].bypass = Asked()  # type: ignore[assignment]
    rig.engine.store(range(4), kv(4))

    assert free == [False]


def test_a_batch_that_is_being_taken_still_waits(rig: Rig) -> None:
    rig.stores[0].fault = Gate("store")
    writer = rig.storage._writers[0]
    take, seen = writer._next_batch, []
    reader = threading.Thread(target=lambda: seen.append(writer.waiting_chunks))

    def read_meanwhile() -> list[Any]:
        batch = take()
        if batch:
            reader.start()
            reader.join(0.2)
        return batch

    writer._next_batch = read_meanwhile  # type: ignore[method-assign]
    rig.engine.store(range(4), kv(4))
    assert until(lambda: reader.ident is not None)
    reader.join()

    assert seen == [1]
