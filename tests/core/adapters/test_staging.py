"""The order of copies, against a stream that copies as late as it may, and the calls a CUDA stream gets."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tests.core.adapters.late_stream import LateStream

from lmcache_core import KVLayout
from lmcache_core.adapters.staging import CudaCopyStream, Staging, copy_stream_of
from lmcache_core.adapters.tensors import TensorAdapter

SHAPE = (2, 3)
LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_size=3, dtype="float32")


def chunks(count: int) -> list[torch.Tensor]:
    return [torch.full(SHAPE, float(place)) for place in range(count)]


def empty(count: int) -> list[torch.Tensor]:
    return [torch.full(SHAPE, -1.0) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_reading_is_complete_when_it_returns(count: int) -> None:
    targets = empty(count)

    Staging(LateStream(), SHAPE, torch.float32).read(chunks(count), targets)

    assert all(torch.equal(target, chunk) for target, chunk in zip(targets, chunks(count), strict=True))


def test_reading_keeps_one_copy_in_flight_while_another_lands() -> None:
    stream = LateStream()

    Staging(stream, SHAPE, torch.float32).read(chunks(3), empty(3))

    assert stream.told == [
        "pin [2, 3]", "pin [2, 3]", "follow", "copy 0", "copy 1", "wait 0", "copy 2", "wait 1", "wait 2",
    ]  # fmt: skip


def test_writing_reaches_the_callers_stream_alone() -> None:
    stream, target = LateStream(), torch.full(SHAPE, -1.0)

    Staging(stream, SHAPE, torch.float32).write(target, chunks(3)[2])

    assert bool((target == -1).all())
    stream.reach()
    assert bool((target == 2).all())


def test_what_was_written_may_be_overwritten_at_once() -> None:
    stream, target, source = LateStream(), torch.full(SHAPE, -1.0), torch.ones(SHAPE)

    Staging(stream, SHAPE, torch.float32).write(target, source)
    source.fill_(9)
    stream.reach()

    assert bool((target == 1).all())


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_buffer_is_filled_anew_only_after_its_copy(count: int) -> None:
    stream, targets = LateStream(), empty(count)
    staging = Staging(stream, SHAPE, torch.float32)

    for target, chunk in zip(targets, chunks(count), strict=True):
        staging.write(target, chunk)
    stream.reach()

    assert all(torch.equal(target, chunk) for target, chunk in zip(targets, chunks(count), strict=True))


def test_writing_waits_only_for_the_buffer_it_needs() -> None:
    stream = LateStream()
    staging = Staging(stream, SHAPE, torch.float32)

    for target, chunk in zip(empty(3), chunks(3), strict=True):
        staging.write(target, chunk)

    assert stream.told[2:] == [
        "follow", "copy 0", "lead 0", "follow", "copy 1", "lead 1", "wait 0", "follow", "copy 2", "lead 2",
    ]  # fmt: skip


def test_a_failed_copy_spoils_no_later_one() -> None:
    stream, target = LateStream(), torch.full(SHAPE, -1.0)
    staging = Staging(stream, SHAPE, torch.float32)

    with pytest.raises(RuntimeError):
        staging.write(target, torch.ones(2 * target.numel()))
    staging.write(target, torch.ones(SHAPE))
    stream.reach()

    assert bool((target == 1).all())


def test_adapter_takes_the_devices_stream_and_the_bytes_are_the_same() -> None:
    stream = LateStream()
    kv = torch.randn(2, 2, 6, 3)
    plain, staged = [bytearray(96) for _ in range(3)], [bytearray(96) for _ in range(3)]

    TensorAdapter(LAYOUT, 2).gather(kv, [0, 2, 4], [memoryview(out) for out in plain])
    TensorAdapter(LAYOUT, 2, lambda _device: stream).gather(kv, [0, 2, 4], [memoryview(out) for out in staged])

    assert staged == plain
    assert stream.done == 3


def test_adapter_scatters_through_the_devices_stream() -> None:
    stream, kv, out = LateStream(), torch.randn(2, 2, 4, 3), torch.zeros(2, 2, 4, 3)
    adapter = TensorAdapter(LAYOUT, 2, lambda _device: stream)
    payloads = [bytearray(96), bytearray(96)]
    adapter.gather(kv, [0, 2], [memoryview(payload) for payload in payloads])

    for start, payload in zip((0, 2), payloads, strict=True):
        adapter.scatter(memoryview(payload), out, start)
        payload[:] = bytes(96)  # as a block that another chunk gets
    adapter.finish(out)
    stream.reach()

    assert torch.equal(out, kv)


def test_each_direction_has_its_own_buffers_made_once() -> None:
    stream, kv = LateStream(), torch.zeros(2, 2, 2, 3)
    adapter = TensorAdapter(LAYOUT, 2, lambda _device: stream)

    for _ in range(3):
        adapter.gather(kv, [0], [memoryview(bytearray(96))])
        adapter.scatter(memoryview(bytearray(96)), kv, 0)

    assert stream.told.count("pin [2, 2, 2, 3]") == 4


def test_plain_memory_has_no_copy_stream() -> None:
    assert copy_stream_of(torch.device("cpu")) is None


class FakeStream:
    """Writes down the calls that torch's own stream would get."""

    def __init__(self, name: str, told: list[Any]) -> None:
        self.name, self.told = name, told

    def wait_stream(self, other: FakeStream) -> None:
        self.told.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: str) -> None:
        self.told.append(f"{self.name} waits for {event}")

    def record_event(self) -> str:
        self.told.append(f"{self.name} records")
        return "event"


def test_a_cuda_stream_waits_by_events_and_never_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(f"copies on {device}", told))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(f"caller on {device}", told))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: told.append(f"in {stream.name}") or nullcontext())
    stream = CudaCopyStream(torch.device("cuda:1"))
    target = torch.zeros(2)

    stream.follow_caller()
    mark = stream.copy(target, torch.ones(2))
    stream.lead_caller(mark)

    assert told == [
        "copies on cuda:1 waits for caller on cuda:1",
        "in copies on cuda:1",
        "copies on cuda:1 records",
        "caller on cuda:1 waits for event",
    ]
    assert target.tolist() == [1, 1]
