import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.core.health.tower import Watchtower

from lmcache_core.health.history import History
from lmcache_core.health.overrides import Overrides
from lmcache_core.ops.access import AccessToken
from lmcache_core.ops.action import Action
from lmcache_core.ops.override_desk import OverrideDesk

MakeSite = Callable[..., Any]
TOKEN = "a-token-of-the-tests"
ORDER = {"backend": "RemoteBackend-0", "owner": "alice", "reason": "kernel update", "ttl_s": 60}
BEARER = {"authorization": f"Bearer {TOKEN}"}


def actions(tower: Watchtower) -> list[Action]:
    overrides = Overrides(storage=tower.storage, history=History(tower.metrics), metrics=tower.metrics)
    return OverrideDesk(overrides, AccessToken(TOKEN)).actions()


def post(site: Any, order: object, **headers: str) -> Any:
    body = order if isinstance(order, bytes) else json.dumps(order).encode()
    return site.get("/health/overrides", "POST", body, **headers)


def test_an_order_with_the_token_is_in_force(site: MakeSite) -> None:
    one = site(actions=actions)
    answer = post(one, {**ORDER, "writes": False, "by": "bob"}, **BEARER)
    told = answer.json["override"]

    assert answer.status == 201
    assert {key: told[key] for key in ("backend", "owner", "reason", "reads", "writes", "ttl_s")} == {
        **ORDER,
        "reads": True,
        "writes": False,
    }
    assert 59 < told["left_s"] <= 60
    assert one.tower.storage.bypassed() == {"RemoteBackend-0": ("operator:alice",)}


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Basic " + TOKEN}],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_without_the_token_nothing_changes(site: MakeSite, headers: dict[str, str], method: str) -> None:
    one = site(actions=actions)
    one.tower.storage.set_backend_bypass("RemoteBackend-0", True, owner="operator:alice")
    path = "/health/overrides" + ("/RemoteBackend-0/alice" if method == "DELETE" else "")
    answer = one.get(path, method, json.dumps({**ORDER, "owner": "eve"}).encode(), **headers)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert one.tower.storage.bypassed() == {"RemoteBackend-0": ("operator:alice",)}


def test_everybody_may_read_them(site: MakeSite) -> None:
    one = site(actions=actions)
    post(one, ORDER, **BEARER)
    document = one.get("/health/overrides").json

    assert [(each["backend"], each["owner"]) for each in document["overrides"]] == [("RemoteBackend-0", "alice")]
    assert document["persistent"] is False


def test_an_override_can_be_ended(site: MakeSite) -> None:
    one = site(actions=actions)
    post(one, ORDER, **BEARER)
    answer = one.get("/health/overrides/RemoteBackend-0/alice?by=bob", "DELETE", **BEARER)

    assert (answer.status, answer.json["removed"]["owner"]) == (200, "alice")
    assert one.tower.storage.bypassed() == {}


def test_ending_one_that_is_not_there_is_404(site: MakeSite) -> None:
    answer = site(actions=actions).get("/health/overrides/RemoteBackend-0/alice", "DELETE", **BEARER)

    assert (answer.status, answer.json) == (
        404,
        {"error": "backend 'RemoteBackend-0' has no override of 'alice'; none is in force"},
    )


def test_a_drain_says_whether_the_queue_was_empty(site: MakeSite) -> None:
    answer = post(site(actions=actions), {**ORDER, "drain": True, "timeout_s": 5}, **BEARER)

    assert (answer.status, answer.json["flushed"], answer.json["override"]["drain"]) == (201, True, True)


@pytest.mark.parametrize(
    ("order", "status", "sentence"),
    [
        (b"", 400, "the body is no JSON object"),
        (b"[1]", 400, "the body is no JSON object"),
        (b"[" * 16_000, 400, "the body is no JSON object"),
        (
            {**ORDER, "tll_s": 1},
            400,
            "tll_s: unknown key; known: backend, owner, reason, ttl_s, reads, writes, drain, timeout_s, by",
        ),
        ({"backend": "RemoteBackend-0"}, 400, "missing: owner, reason, ttl_s"),
        ({**ORDER, "ttl_s": "60"}, 400, "ttl_s: str is not what it takes"),
        ({**ORDER, "ttl_s": True}, 400, "ttl_s: bool is not what it takes"),
        ({**ORDER, "reads": 1}, 400, "reads: int is not what it takes"),
        ({**ORDER, "ttl_s": 0}, 400, "ttl: 0 s is not between 1 s and 30 d; an override always ends, so renew it"),
        ({**ORDER, "drain": True, "timeout_s": -1}, 400, "timeout_s: write seconds, 0 or more"),
        ({**ORDER, "backend": "Remote"}, 404, "backend 'Remote' cannot be left out; those that can: RemoteBackend-0"),
    ],
)
def test_a_wrong_order_is_one_sentence(site: MakeSite, order: object, status: int, sentence: str) -> None:
    one = site(actions=actions)
    answer = post(one, order, **BEARER)

    assert (answer.status, answer.json) == (status, {"error": sentence})
    assert one.tower.storage.bypassed() == {}


def test_infinity_is_no_time(site: MakeSite) -> None:
    answer = post(site(actions=actions), json.dumps({**ORDER, "ttl_s": float("inf")}).encode(), **BEARER)

    assert answer.status == 400


def test_a_body_that_is_too_long_is_refused_unread(site: MakeSite) -> None:
    assert post(site(actions=actions), b" " * 100_000, **BEARER).status == 413


def test_it_says_when_nothing_but_memory_is_left(site: MakeSite) -> None:
    one = site(actions=actions)
    some = post(one, {**ORDER, "reads": False}, **BEARER).json["notes"]
    all_out = post(one, ORDER, **BEARER).json["notes"]
    forgotten = "it ends with the process, as no health_state_dir is configured or usable"

    assert some == [forgotten]
    assert all_out == [forgotten, "every store is left out of reads now: only CPU memory serves"]
