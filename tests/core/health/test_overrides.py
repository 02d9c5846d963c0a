import json
import logging
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.health.desk import BACKEND, Desk, WallClock
from tests.memory_store import Rig

from lmcache_core import OverrideError
from lmcache_plugins.fallback.policy import LocalCPUPolicy

MakeDesk = Callable[..., Desk]


def test_an_override_holds_the_backend_out_under_its_owners_name(desk: MakeDesk) -> None:
    one = desk()
    one.add()

    assert one.rig.storage.bypassed() == {BACKEND: ("operator:alice",)}
    assert (one.bypass.reads, one.bypass.writes) == (True, True)


@pytest.mark.parametrize(("reads", "writes"), [(True, False), (False, True)])
def test_one_side_alone_can_be_left_out(desk: MakeDesk, reads: bool, writes: bool) -> None:
    one = desk()
    one.add(reads=reads, writes=writes)

    assert (one.bypass.reads, one.bypass.writes) == (reads, writes)


def test_two_owners_are_two_overrides(desk: MakeDesk) -> None:
    one = desk()
    one.add("alice")
    one.add("bob")
    one.overrides.remove(BACKEND, owner="alice")

    assert one.rig.storage.bypassed() == {BACKEND: ("operator:bob",)}


def test_a_second_one_of_an_owner_replaces_the_first(desk: MakeDesk) -> None:
    one = desk()
    one.add(reads=True, writes=True)
    one.add(reads=False, writes=True, reason="only writes now")

    assert [override.reason for override in one.overrides.active()] == ["only writes now"]
    assert (one.bypass.reads, one.bypass.writes) == (False, True)


def test_removing_lets_go_of_nothing_else(desk: MakeDesk) -> None:
    one = desk()
    one.rig.storage.set_backend_bypass(BACKEND, True, owner="check:disk")
    one.add()
    one.overrides.remove(BACKEND, owner="alice")

    assert one.rig.storage.bypassed() == {BACKEND: ("check:disk",)}


def test_a_recovery_never_undoes_it(desk: MakeDesk, tower: Callable[..., object]) -> None:
    """In a peer the monitor's recovery undid an operator's bypass."""
    from tests.core.health.tower import SteeredCheck

    one = desk()
    check = SteeredCheck(policy="local_cpu", backend=BACKEND)
    policy = LocalCPUPolicy()
    policy.engage(check, one.rig.storage)
    one.add()
    policy.release(check, one.rig.storage)

    assert one.rig.storage.bypassed() == {BACKEND: ("operator:alice",)}


def test_it_ends_when_its_time_is_over(desk: MakeDesk) -> None:
    one = desk()
    one.add(ttl_s=60.0)
    one.clock.now_s += 59.0
    left_s = one.overrides.expire()
    one.clock.now_s += 1.0
    none_s = one.overrides.expire()

    assert (left_s, none_s) == (1.0, float("inf"))
    assert one.rig.storage.bypassed() == {}
    assert one.overrides.active() == ()


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"owner": ""}, "owner '': write a name of letters, digits and _ . @ + -, at most 63"),
        ({"owner": "a b"}, "owner 'a b': write a name of letters, digits and _ . @ + -, at most 63"),
        ({"reason": " "}, "reason: write one line of 1 to 500 letters, for those who find the override"),
        ({"reason": "a\nb"}, "reason: write one line of 1 to 500 letters, for those who find the override"),
        ({"ttl_s": 0.5}, "ttl: 0.5 s is not between 1 s and 30 d; an override always ends, so renew it"),
        ({"ttl_s": float("nan")}, "ttl: nan s is not between 1 s and 30 d; an override always ends, so renew it"),
        ({"ttl_s": 1e9}, "ttl: 1e+09 s is not between 1 s and 30 d; an override always ends, so renew it"),
        (
            {"reads": False, "writes": False},
            "neither reads nor writes: the override would leave nothing out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(desk: MakeDesk, how: dict[str, object], sentence: str) -> None:
    one = desk()
    with pytest.raises(OverrideError) as caught:
        one.add(**how)

    assert str(caught.value) == sentence
    assert one.rig.storage.bypassed() == {}


@pytest.mark.parametrize("backend", ["RemoteBackend-1", "LocalCPUBackend"])
def test_a_backend_that_cannot_be_left_out_is_refused(desk: MakeDesk, backend: str) -> None:
    with pytest.raises(OverrideError) as caught:
        desk().overrides.add(backend, owner="alice", reason="x", ttl_s=60)

    assert str(caught.value) == f"backend {backend!r} cannot be left out; those that can: RemoteBackend-0"
    assert caught.value.missing


def test_removing_what_is_not_there_says_whose_there_are(desk: MakeDesk) -> None:
    one = desk()
    one.add("bob")
    with pytest.raises(OverrideError) as caught:
        one.overrides.remove(BACKEND, owner="alice")

    assert str(caught.value) == "backend 'RemoteBackend-0' has no override of 'alice'; those of bob are in force"


def test_each_change_is_told_once(desk: MakeDesk) -> None:
    one = desk()
    one.add()
    one.overrides.remove(BACKEND, owner="alice")
    one.add(ttl_s=1.0)
    one.clock.now_s += 2
    one.overrides.expire()
    one.overrides.expire()

    assert one.changes == 4


# -- audit ------------------------------------------------------------------------


def test_the_audit_log_says_who_what_why_when_and_until(desk: MakeDesk) -> None:
    one = desk()
    one.add(by="bob", ttl_s=1800.0)
    (line,) = one.audit()

    assert line == {
        "at": "2023-11-14T22:13:20.000Z",
        "event": "added",
        "by": "bob",
        "backend": BACKEND,
        "owner": "alice",
        "reason": "kernel update",
        "reads": True,
        "writes": True,
        "drain": False,
        "created_unix_s": 1_700_000_000.0,
        "expires_unix_s": 1_700_001_800.0,
        "created": "2023-11-14T22:13:20.000Z",
        "expires": "2023-11-14T22:43:20.000Z",
        "ttl_s": 1800.0,
    }


def test_every_change_is_a_line_of_the_audit_log(desk: MakeDesk) -> None:
    one = desk()
    one.add()
    one.add()
    one.overrides.remove(BACKEND, owner="alice")
    one.add(ttl_s=1.0)
    one.clock.now_s += 1.0
    one.overrides.expire()

    assert one.events() == ["added", "replaced", "removed", "added", "expired"]


def test_only_the_owner_can_read_the_files(desk: MakeDesk) -> None:
    one = desk()
    one.overrides.restore()
    one.add()
    assert one.state_path is not None
    assert one.audit_path is not None
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (one.state_path, one.audit_path, one.state_path.parent)]

    assert modes == [0o600, 0o600, 0o700]


def test_a_change_is_in_the_history_and_counted(desk: MakeDesk) -> None:
    one = desk()
    one.add()
    (noted,) = one.history.latest()

    assert (noted.kind, noted.name, noted.after) == ("override", BACKEND, "added")
    assert noted.reason == "reads and writes, operator:alice: kernel update"
    assert one.rig.sample("overrides", backend=BACKEND) == 1


# -- restart ----------------------------------------------------------------------


def test_an_override_is_in_force_again_after_a_restart(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.add(reads=False)
    first.overrides.close()
    second = desk(clock=first.clock)
    second.overrides.restore()

    assert second.overrides.active() == first.overrides.active()
    assert (second.bypass.reads, second.bypass.writes) == (False, True)
    assert second.events()[-1] == "restored"


def test_its_end_is_by_the_wall_clock(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.add(ttl_s=100.0)
    first.overrides.close()
    second = desk(clock=WallClock(first.clock.now_s + 90.0))
    second.overrides.restore()

    assert second.overrides.expire() == 10.0


def test_what_has_expired_meanwhile_is_dropped_with_a_line(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.add(ttl_s=100.0)
    first.overrides.close()
    second = desk(clock=WallClock(first.clock.now_s + 101.0))
    second.overrides.restore()

    assert second.rig.storage.bypassed() == {}
    assert second.events() == ["added", "expired"]
    assert second.state_path is not None
    assert json.loads(second.state_path.read_text())["overrides"] == []


def test_a_backend_that_is_gone_is_dropped_with_a_line(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.add()
    first.overrides.close()
    second = desk(rig=Rig(stores=[]))
    second.overrides.restore()

    assert second.overrides.active() == ()
    assert second.events()[-1] == "dropped, as the backend is not there any more"


def test_removing_holds_after_a_restart(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.add()
    first.overrides.remove(BACKEND, owner="alice")
    first.overrides.close()
    second = desk()
    second.overrides.restore()

    assert second.overrides.active() == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 2, "overrides": []}',
        '{"version": 1}',
        '{"version": 1, "overrides": {}}',
        '{"version": 1, "overrides": [1]}',
        '{"version": 1, "overrides": [{"backend": "RemoteBackend-0"}]}',
        "[" * 100_000,
        "\x00\x01",
    ],
)
def test_a_file_that_makes_no_sense_is_counted_and_never_a_crash(
    desk: MakeDesk, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cache.overrides.json").write_text(text)
    one = desk()
    one.overrides.restore()

    assert one.overrides.active() == ()
    assert (one.rig.sample("health_file_errors_total") > 0) is (text != "null")
    one.add()
    assert one.overrides.persistent


def test_one_bad_entry_does_not_cost_the_others(desk: MakeDesk) -> None:
    first = desk()
    first.overrides.restore()
    first.add()
    first.overrides.close()
    assert first.state_path is not None
    document = json.loads(first.state_path.read_text())
    document["overrides"].insert(0, {**document["overrides"][0], "expires_unix_s": 1e300})
    first.state_path.write_text(json.dumps(document))
    second = desk()
    second.overrides.restore()

    assert [override.owner for override in second.overrides.active()] == ["alice"]


def test_a_corrupt_file_is_kept_aside(desk: MakeDesk, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cache.overrides.json").write_text("{")
    desk().overrides.restore()

    assert (tmp_path / "state" / "cache.overrides.json.corrupt").read_text() == "{"


def test_a_second_instance_keeps_its_hands_off_the_file(desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    first, second = desk(), desk()
    first.overrides.restore()
    first.add()
    second.overrides.restore()
    second.add("bob")

    assert (first.overrides.persistent, second.overrides.persistent) == (True, False)
    assert first.state_path is not None
    assert [entry["owner"] for entry in json.loads(first.state_path.read_text())["overrides"]] == ["alice"]
    assert (
        f"{first.state_path} belongs to another process; give each instance a lmcache_instance_id of its own; "
        "overrides end with this process"
    ) in caplog.messages


def test_a_folder_that_cannot_be_made_costs_only_the_memory_of_it(
    desk: MakeDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    one = desk(tmp_path / "file" / "state")
    one.overrides.restore()
    one.add()

    assert one.rig.storage.bypassed() == {BACKEND: ("operator:alice",)}
    assert one.rig.sample("health_file_errors_total") >= 2
    assert caplog.records[0].levelno == logging.WARNING


def test_without_a_folder_nothing_is_written(desk: MakeDesk, tmp_path: Path) -> None:
    one = desk(None)
    one.overrides.restore()
    one.add()

    assert list(tmp_path.iterdir()) == []
    assert not one.overrides.persistent


def test_readers_never_wait_for_a_file(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor asks for overrides in each look: a disk that hangs must not hold it up."""
    one = desk()
    one.overrides.restore()
    release, entered = threading.Event(), threading.Event()

    def hang(_self: object, _document: object) -> None:
        entered.set()
        release.wait(30)

    monkeypatch.setattr("lmcache_core.health.state_file.StateFile.write", hang)
    writer = threading.Thread(target=one.add)
    writer.start()
    assert entered.wait(5)
    (active,) = one.overrides.active()
    (report,) = one.overrides.annotate(one.rig.storage.describe())
    release.set()
    writer.join()

    assert active.owner == "alice"
    assert report.holds[0].left_s == 60.0
