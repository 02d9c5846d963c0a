from lmcache_core.memory.arena import ALIGNMENT_BYTES, Arena, Block
from lmcache_core.memory.lease import Lease, PromiseTable


class Clock:
    """Seconds that move when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def lease_on(arena: Arena) -> Lease:
    block = arena.allocate(1)
    assert isinstance(block, Block)
    return Lease(arena, [block])


def test_lease_is_released_once() -> None:
    arena = Arena(4 * ALIGNMENT_BYTES)
    lease = lease_on(arena)

    lease.release()
    lease.release()

    assert arena.used_bytes == 0


def test_taken_blocks_are_no_longer_the_leases() -> None:
    arena = Arena(4 * ALIGNMENT_BYTES)
    lease = lease_on(arena)

    blocks = lease.take()
    lease.release()

    assert arena.used_bytes == ALIGNMENT_BYTES
    arena.release(blocks)
    assert arena.used_bytes == 0


def test_promise_is_taken_by_its_request() -> None:
    table: PromiseTable[str] = PromiseTable(1.0, Clock())
    table.add(b"r", lease_on(Arena(ALIGNMENT_BYTES)), "plan")

    promise = table.take(b"r")

    assert promise is not None
    assert promise.plan == "plan"
    assert table.take(b"r") is None


def test_promises_of_one_request_wait_in_line() -> None:
    table: PromiseTable[int] = PromiseTable(1.0, Clock())
    arena = Arena(4 * ALIGNMENT_BYTES)
    table.add(b"r", lease_on(arena), 1)
    table.add(b"r", lease_on(arena), 2)

    taken = [table.take(b"r"), table.take(b"r")]

    assert [promise.plan for promise in taken if promise] == [1, 2]


def test_overdue_promise_is_released_and_counted() -> None:
    clock, arena = Clock(), Arena(4 * ALIGNMENT_BYTES)
    table: PromiseTable[None] = PromiseTable(10.0, clock)
    table.add(b"old", lease_on(arena), None)
    clock.now_s = 5.0
    table.add(b"new", lease_on(arena), None)
    clock.now_s = 10.0

    assert table.expire() == [(b"old", None)]
    assert arena.used_bytes == ALIGNMENT_BYTES
    assert table.take(b"old") is None
    assert len(table) == 1


def test_shutdown_releases_everything() -> None:
    arena = Arena(4 * ALIGNMENT_BYTES)
    table: PromiseTable[None] = PromiseTable(10.0, Clock())
    table.add(b"r", lease_on(arena), None)

    table.drop_all()

    assert arena.used_bytes == 0
    assert len(table) == 0
