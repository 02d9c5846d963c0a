"""What is registered, by how many, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.core.server.served import Served
from tests.core.server.talker import WIRE_LAYOUT, Talker, digests

from lmcache_core.wire import messages as wire
from lmcache_core.wire.messages import RefusalCode

Talk = Callable[[Served], Talker]


def layout(**changes: Any) -> wire.Layout:
    return msgspec.structs.replace(WIRE_LAYOUT, **changes)


def test_a_registration_says_how_chunks_are_cut(served: Served, talk: Talk) -> None:
    talker = talk(served)
    talker.hello()
    registered = talker.register()

    assert (registered.chunk_tokens, registered.frame_bytes) == (4, served.rig.codec.frame_bytes)


def test_two_clients_of_one_model_share_a_registration(served: Served, talk: Talk) -> None:
    first, second = talk(served).enter(), talk(served).enter()

    assert first.registration == second.registration


def test_a_model_and_world_size_is_told_of_once(served: Served, talk: Talk) -> None:
    for rank in (0, 1):
        talker = talk(served)
        talker.hello()
        talker.register(world_size=2, ranks=(rank,))
    talk(served).enter()

    told = [(namespace.model_name, namespace.world_size, kind) for namespace, _, kind in served.registered]
    assert told == [("m", 2, "llama"), ("m", 1, "llama")]


def test_a_model_is_told_of_again_when_nobody_held_it_in_between(served: Served, talk: Talk) -> None:
    for _ in range(2):
        talker = talk(served).enter()
        talker.say(talker.build(wire.Bye))
        talker.ping()

    assert len(served.registered) == 2


def test_windows_are_those_of_the_groups(served: Served, talk: Talk) -> None:
    talker = talk(served)
    talker.hello()
    groups = (("near", "sliding_window", 1), ("far", "full", 1))
    talker.register(layout=layout(groups=groups), windows=(6, 0), group_kinds=("sliding_window", "full"))

    ((_, told, _),) = served.registered
    assert [group.window_tokens for group in told.groups] == [6, 0]


def test_registering_twice_is_registering_once(served: Served, talk: Talk) -> None:
    talker = talk(served).enter()
    again = talker.register()

    assert again.registration == talker.registration
    assert len(served.sessions()[0]["registrations"]) == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"layout": layout(groups=(("kv", "mamba", 2),))},
            (
                "kv layout: group 'kv' is of kind 'mamba', whose state cannot be rebuilt from a prefix's chunks; "
                "only full, mla, sliding_window are cached, so run this model without lmcache-core"
            ),
        ),
        (
            {"group_kinds": ("full", "mamba")},
            (
                "kv layout: group 1 is of kind 'mamba', whose state cannot be rebuilt from a prefix's chunks; "
                "only full, mla, sliding_window are cached, so run this model without lmcache-core"
            ),
        ),
        (
            {"windows": (0, 512)},
            "kv layout: 2 windows are told of 0 groups; tell one of each group",
        ),
        (
            {"windows": (0,), "layout": layout(groups=(("near", "sliding_window", 2),))},
            (
                "kv layout: group 'near' is of kind 'sliding_window' with window_tokens=0; "
                "a sliding window has at least 1, any other kind 0"
            ),
        ),
        (
            {"layout": layout(dtype="int3")},
            "kv layout: dtype 'int3' is not stored; use one of bfloat16, float16, float32, float8_e4m3fn, float8_e5m2",
        ),
        ({"model_name": "too-big"}, "one chunk is larger than the memory"),
        ({"ranks": ()}, "register: ranks [] are not different ranks of 1"),
        ({"ranks": (1,)}, "register: ranks [1] are not different ranks of 1"),
        ({"ranks": (0, 0), "world_size": 2}, "register: ranks [0, 0] are not different ranks of 2"),
        ({"block_tokens": 0}, "register: block_tokens must be a whole number of at least 1, got 0"),
        ({"model_name": "m" * 513}, "register: a name or list is too long"),
    ],
)
def test_what_cannot_be_cached_is_refused_in_a_sentence(
    served: Served, talk: Talk, fields: dict[str, Any], sentence: str
) -> None:
    talker = talk(served)
    talker.hello()
    wanted = {
        "model_name": "m",
        "model_type": "",
        "layout": WIRE_LAYOUT,
        "windows": (),
        "group_kinds": (),
        "world_size": 1,
        "ranks": (0,),
        "block_tokens": 1,
    }
    refused = talker.ask_for(wire.Refused, wire.Register, **{**wanted, **fields})

    assert (refused.code, refused.message) == (RefusalCode.LAYOUT, sentence)
    assert served.sessions()[0]["registrations"] == []


def test_digests_of_another_number_of_ranks_are_refused(served: Served, worker: Talker) -> None:
    refused = worker.lookup("a", digests=(digests("a"), digests("b")))

    assert isinstance(refused, wire.Refused)
    assert (refused.code, refused.message) == (
        RefusalCode.MALFORMED,
        "digests of 2 ranks came, and 1 are registered",
    )


def test_half_a_digest_is_refused(served: Served, worker: Talker) -> None:
    refused = worker.lookup("a", digests=(digests("a")[:-1],))

    assert isinstance(refused, wire.Refused)
    assert (refused.code, refused.message) == (RefusalCode.MALFORMED, "31 bytes of digests are no multiple of 32")


@pytest.mark.parametrize("salt", ["secret", "A" * 32, "a" * 31, "../" * 8 + "a" * 8])
def test_what_is_no_salts_hash_is_refused(served: Served, worker: Talker, salt: str) -> None:
    refused = worker.lookup("a", salt_hash=salt)

    assert isinstance(refused, wire.Refused)
    assert refused.message == "a salt's or variant's hash must be 32 hex digits or nothing"


def test_a_registration_of_another_session_is_refused(served: Served, worker: Talker, talk: Talk) -> None:
    other = talk(served)
    other.hello()
    other.registration = worker.registration
    refused = other.lookup("a")

    assert isinstance(refused, wire.Refused)
    assert (refused.code, refused.message) == (
        RefusalCode.REGISTRATION,
        f"the session has no registration {worker.registration}; register first",
    )
