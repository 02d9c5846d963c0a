"""Blocks that clients fill and read."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable

import pytest
from tests.core.server.served import Served, until
from tests.core.server.talker import Talker, digests
from tests.memory_store import CHUNK_TOKENS

from lmcache_core.codec.frame import HEADER_BYTES
from lmcache_core.wire import messages as wire
from lmcache_core.wire.messages import RefusalCode

Talk = Callable[[Served], Talker]


def refused(answer: object) -> tuple[str, str]:
    assert isinstance(answer, wire.Refused), answer
    return answer.code, answer.message


def found(answer: object) -> tuple[int, int]:
    assert isinstance(answer, wire.Found), answer
    return answer.chunks, answer.l1_chunks


# -- store ---------------------------------------------------------------------------


def test_what_is_filled_is_what_others_read(served: Served, worker: Talker, talk: Talk) -> None:
    reserved = worker.reserve("a", "b")
    size, header = served.rig.codec.payload_bytes, HEADER_BYTES
    with mmap.mmap(worker.arena_fd, served.rig.arena.capacity_bytes) as mine:
        for offset, letter in zip(reserved.offsets, b"ab", strict=True):
            mine[offset + header : offset + header + size] = bytes([letter]) * size
    worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease)
    reader = talk(served).enter()
    lent = reader.retrieve("a", "b")
    with mmap.mmap(reader.arena_fd, served.rig.arena.capacity_bytes) as theirs:
        read = [theirs[offset + header : offset + header + size] for offset in lent.offsets]

    assert read == [b"a" * size, b"b" * size]


def test_only_what_is_missing_is_reserved(served: Served, worker: Talker) -> None:
    worker.store("a", "c")

    assert worker.reserve("a", "b", "c", "d").places == (1, 3)


def test_the_oldest_lease_is_known_as_long_as_it_is_out(served: Served, worker: Talker) -> None:
    assert served.server.oldest_lease_s() == 0
    reserved = worker.reserve("a")
    assert 0 < served.server.oldest_lease_s() < 60
    worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease)

    assert served.server.oldest_lease_s() == 0


def test_chunks_that_another_fills_are_left_out(served: Served, worker: Talker, talk: Talk) -> None:
    worker.reserve("a", "b")

    assert talk(served).enter().reserve("a", "b", "c").places == (2,)


def test_chunks_that_are_being_filled_are_not_found(served: Served, worker: Talker) -> None:
    worker.reserve("a")

    assert found(worker.lookup("a")) == (0, 0)
    assert worker.retrieve("a").offsets == ()


def test_a_store_of_nothing_needs_no_commit_and_is_counted(served: Served, worker: Talker) -> None:
    worker.store("a")
    reserved = worker.reserve("a")

    assert (reserved.lease, reserved.places, reserved.offsets) == (0, (), ())
    assert served.rig.sample("num_stored_tokens_total") == CHUNK_TOKENS


def test_a_commit_says_how_much_was_kept(served: Served, worker: Talker) -> None:
    reserved = worker.reserve("a", "b")

    assert worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease).count == 2


def test_abandoned_blocks_are_free_and_their_chunks_can_be_filled_again(served: Served, worker: Talker) -> None:
    reserved = worker.reserve("a", "b")
    worker.say(worker.build(wire.Abandon, lease=reserved.lease))

    assert worker.reserve("a", "b").places == (0, 1)
    assert served.rig.arena.blocks == 2


def test_more_than_fits_is_reserved_as_far_as_it_goes(served: Served, worker: Talker) -> None:
    names = [f"chunk {number}" for number in range(20)]
    reserved = worker.reserve(*names)

    assert reserved.places == tuple(range(8))
    assert len(set(reserved.offsets)) == 8


def test_a_commit_of_no_reservation_is_refused(served: Served, worker: Talker) -> None:
    reserved = worker.reserve("a")
    worker.ask_for(wire.Done, wire.Commit, lease=reserved.lease)

    assert refused(worker.ask(wire.Commit, lease=reserved.lease)) == (
        RefusalCode.LEASE,
        f"the session has no reservation {reserved.lease}",
    )


def test_a_commit_of_another_sessions_reservation_is_refused(served: Served, worker: Talker, talk: Talk) -> None:
    reserved = worker.reserve("a")
    other = talk(served).enter()

    assert refused(other.ask(wire.Commit, lease=reserved.lease))[0] == RefusalCode.LEASE


@pytest.mark.parametrize("message", [wire.Abandon, wire.Return])
def test_what_is_given_back_twice_is_counted_and_harmless(
    served: Served, worker: Talker, message: type[wire.Message]
) -> None:
    fields = {"delivered_chunks": 0} if message is wire.Return else {}
    worker.say(worker.build(message, lease=99, **fields))
    worker.ping()

    assert served.rig.sample("server_refused_messages_total", code="lease") == 1


def test_no_block_is_lent_to_a_client_whose_death_would_not_be_seen(served: Served, talk: Talk) -> None:
    talker = talk(served)
    talker.hello()
    talker.register()
    sentence = (RefusalCode.SESSION, "the session is not on the lifeline; connect there with the ticket first")

    assert refused(talker.ask(wire.Reserve, digests=digests("a"))) == sentence
    assert refused(talker.ask(wire.Retrieve, digests=digests("a"))) == sentence
    assert refused(talker.ask(wire.Clear)) == sentence
    assert found(talker.lookup("a")) == (0, 0)


# -- retrieve ------------------------------------------------------------------------------


def test_the_leading_chunks_are_lent(served: Served, worker: Talker) -> None:
    worker.store("a", "b", "d")

    assert len(worker.retrieve("a", "b", "c", "d").offsets) == 2


def test_skipped_chunks_are_not_lent(served: Served, worker: Talker) -> None:
    worker.store("a", "b", "c")
    whole = worker.retrieve("a", "b", "c")

    assert worker.retrieve("a", "b", "c", skip_chunks=2).offsets == whole.offsets[2:]


@pytest.mark.parametrize("skip", [-1, 3])
def test_more_than_all_cannot_be_skipped(served: Served, worker: Talker, skip: int) -> None:
    answer = worker.ask(wire.Retrieve, digests=digests("a", "b"), skip_chunks=skip)

    assert refused(answer) == (RefusalCode.MALFORMED, f"skip_chunks is {skip} of 2 chunks")


def test_lent_blocks_are_not_evicted(served: Served, worker: Talker) -> None:
    worker.store("a")
    lent = worker.retrieve("a")
    reserved = worker.reserve(*range(20))

    assert len(reserved.offsets) == 7
    assert lent.offsets[0] not in reserved.offsets


def test_what_was_delivered_is_counted_when_it_comes_back(served: Served, worker: Talker) -> None:
    worker.store("a", "b")
    worker.give_back(worker.retrieve("a", "b"), delivered=1)
    worker.ping()

    assert served.rig.sample("num_retrieved_tokens_total") == CHUNK_TOKENS


def test_no_more_is_counted_than_was_lent(served: Served, worker: Talker) -> None:
    worker.store("a")
    worker.give_back(worker.retrieve("a"), delivered=1000)
    worker.ping()

    assert served.rig.sample("num_retrieved_tokens_total") == CHUNK_TOKENS


def test_a_retrieve_of_nothing_needs_no_return(served: Served, worker: Talker) -> None:
    lent = worker.retrieve("a")

    assert (lent.lease, lent.offsets) == (0, ())
    assert served.is_exact()


# -- lookup -----------------------------------------------------------------------------------


def test_a_lookup_holds_what_it_promised(served: Served, worker: Talker) -> None:
    worker.store("a", "b")
    assert found(worker.lookup("a", "b", "c", request_id="r")) == (2, 2)
    worker.store(*range(20))

    assert len(worker.retrieve("a", "b", "c", request_id="r").offsets) == 2


def test_a_release_gives_up_the_promise(served: Served, worker: Talker) -> None:
    worker.store("a")
    worker.lookup("a", request_id="r")
    assert served.sessions()[0]["promises"] == 1

    assert worker.ask_for(wire.Done, wire.Release, digests=(digests("a"),), request_id="r").count == 1
    assert worker.ask_for(wire.Done, wire.Release, digests=(digests("a"),), request_id="r").count == 0
    assert served.sessions()[0]["promises"] == 0
    assert served.is_exact()


def test_a_lookup_for_several_ranks_gives_the_smallest_prefix(served: Served, talk: Talk) -> None:
    scheduler = talk(served)
    scheduler.hello("scheduler")
    scheduler.register(world_size=2, ranks=(0, 1))
    worker = talk(served).enter()
    worker.store("a0", "b0", "c0")
    worker.store("a1", "b1")
    answer = scheduler.lookup("x", digests=(digests("a0", "b0", "c0"), digests("a1", "b1", "c1")))

    assert found(answer) == (2, 2)


def test_where_one_rank_has_nothing_nothing_is_held(served: Served, talk: Talk) -> None:
    scheduler = talk(served)
    scheduler.hello("scheduler")
    scheduler.register(world_size=2, ranks=(0, 1))
    talk(served).enter().store("a0")
    answer = scheduler.lookup("x", digests=(digests("a0"), digests("a1")))

    assert found(answer) == (0, 0)
    assert served.is_exact()


def test_a_workers_retrieve_uses_up_the_schedulers_promise(served: Served, talk: Talk) -> None:
    scheduler, worker = talk(served), talk(served).enter()
    scheduler.hello("scheduler")
    scheduler.register()
    worker.store("a")
    scheduler.lookup("a", request_id="r")
    worker.give_back(worker.retrieve("a", request_id="r"))
    worker.ping()

    assert [session["promises"] for session in served.sessions()] == [0, 0]
    assert served.is_exact()


def test_salts_never_meet(served: Served, worker: Talker) -> None:
    """Digests begin with the namespace's seed, in which the salt is; a client computes them from what it registered."""
    one, other = (hashlib.sha256(name).hexdigest()[:32] for name in (b"one", b"other"))
    worker.ask_for(wire.Done, wire.Commit, lease=worker.reserve("a with salt one", salt_hash=one).lease)

    assert found(worker.lookup("a with salt one", salt_hash=one)) == (1, 1)
    assert found(worker.lookup("a with salt other", salt_hash=other)) == (0, 0)


# -- calls that nobody waits for any more --------------------------------------------------------


def test_a_forsaken_lookup_holds_nothing(served: Served, worker: Talker) -> None:
    worker.store("a")
    answer = worker.lookup("a")
    assert isinstance(answer, wire.Found)
    worker.say(worker.build(wire.Forsake, lookup_call=answer.call))
    worker.ping()

    assert served.is_exact()


def test_a_forsaken_reservation_is_abandoned(served: Served, worker: Talker) -> None:
    reserved = worker.reserve("a")
    worker.say(worker.build(wire.Forsake, lookup_call=reserved.call))
    worker.ping()

    assert served.is_exact()
    assert served.rig.arena.blocks == 0


def test_a_forsaken_retrieve_gives_its_blocks_back(served: Served, worker: Talker) -> None:
    worker.store("a")
    lent = worker.retrieve("a")
    worker.say(worker.build(wire.Forsake, lookup_call=lent.call))
    worker.ping()

    assert served.is_exact()


def test_forsaking_what_is_over_is_harmless(served: Served, worker: Talker) -> None:
    worker.say(worker.build(wire.Forsake, lookup_call=12345))

    assert worker.ping().session_known


# -- clear ----------------------------------------------------------------------------------------


def test_a_clear_says_what_it_did_to_each_tier(served: Served, worker: Talker) -> None:
    worker.store("a", "b")
    assert served.rig.storage.flush(10)  # the write-behind leases them too
    worker.retrieve("a")
    cleared = worker.ask_for(wire.ClearedTiers, wire.Clear)

    assert cleared.tiers[0] == ("LocalCPUBackend", 2, 1, "")
    assert [name for name, *_ in cleared.tiers] == ["LocalCPUBackend", "RemoteBackend-0"]
    assert found(worker.lookup("z")) == (0, 0)
    assert until(lambda: served.rig.arena.blocks == 1)
