"""The report: what is in the file, who can read it, what a bad one says."""

import json
import os
import re
import stat
from pathlib import Path

import pytest

from lmcache_core import ChunkReuseTracker, ReuseReports, ReuseSnapshot
from lmcache_core.telemetry.reuse_reports import read_report
from lmcache_core.telemetry.reuse_snapshot import FORMAT


def snapshot(salt_hash: str = "", chunks: int = 3) -> ReuseSnapshot:
    tracker = ChunkReuseTracker(sample_rate=1, idle_ttl_s=100.0, clock=lambda: 0.0)
    digests = [bytes([number]) * 32 for number in range(1, 1 + chunks)]
    for now_s in (0.0, 5.0, 10.0, 500.0):
        tracker.observe(digests, now_s, found=1, salt_hash=salt_hash)
    return ReuseSnapshot.of(tracker, chunk_tokens=256, chunk_bytes=1 << 20)


def test_a_report_reads_back_as_it_was(tmp_path: Path) -> None:
    path = ReuseReports(tmp_path / "new").write(snapshot())
    assert read_report(path) == snapshot()


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = ReuseReports(tmp_path / "new").write(snapshot())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_writing_again_replaces_it_and_leaves_nothing_beside(tmp_path: Path) -> None:
    reports = ReuseReports(tmp_path)
    assert reports.write(snapshot()) == reports.write(snapshot())
    assert len(list(tmp_path.iterdir())) == 1


def test_a_writing_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReuseSnapshot, "to_json", lambda self: {"nan": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        ReuseReports(tmp_path).write(snapshot())
    assert list(tmp_path.iterdir()) == []


def test_no_digest_and_no_salt_is_in_it(tmp_path: Path) -> None:
    text = ReuseReports(tmp_path).write(snapshot(salt_hash="5a17" * 8)).read_text()
    assert "5a17" not in text
    assert re.search(r'"[0-9a-f]{16,}"|[0-9]{12,}', text) is None


def test_two_instances_do_not_overwrite_each_other(tmp_path: Path) -> None:
    one, other = ReuseReports(tmp_path).write(snapshot()), ReuseReports(tmp_path).write(snapshot())
    os.utime(one, (2_000_000_000, 2_000_000_000))
    assert ReuseReports(tmp_path).newest_first() == [one, other]


def test_reports_that_nobody_renewed_for_a_week_go(tmp_path: Path) -> None:
    old, new = ReuseReports(tmp_path).write(snapshot()), ReuseReports(tmp_path).write(snapshot())
    foreign = tmp_path / "notes.json"
    foreign.write_text("{}")
    for path in (old, foreign):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    ReuseReports(tmp_path).remove_stale()
    assert sorted(tmp_path.iterdir()) == sorted([foreign, new])


def test_the_folder_is_the_configurations_or_the_users(tmp_path: Path) -> None:
    named = ReuseReports.of("/srv/reports", {})
    users = ReuseReports.of("", {"HOME": "/home/me"})
    assert named is not None
    assert users is not None
    assert named.folder == Path("/srv/reports")
    assert users.folder == Path("/home/me/.local/state/lmcache/reuse")
    assert ReuseReports.of("", {}) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "\xff", "[" * 100_000])
def test_what_is_no_report_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "reuse-1.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"^no reuse report$"):
        read_report(path)


def test_a_report_of_another_version_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^reuse report of format 99, and this version reads 1$"):
        ReuseSnapshot.from_json({"format": 99})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("tracked", "many", "ValueError"),
        ("living", {"a|b": 1}, "ValueError"),
        ("curve", {}, "KeyError"),
        ("tenants", 7, "TypeError"),
        ("totals", [], "TypeError"),
    ],
)
def test_a_damaged_report_says_so(key: str, value: object, reason: str) -> None:
    damaged = {**json.loads(json.dumps(snapshot().to_json())), key: value}
    assert damaged["format"] == FORMAT
    with pytest.raises(ValueError, match=f"^damaged reuse report: {reason}"):
        ReuseSnapshot.from_json(damaged)


@pytest.mark.parametrize(
    "change",
    [{"sampled": [1]}, {"buckets": {"3": [1, 2]}}, {"buckets": {"99999999": [0] * 8}}, {"horizon_chunks": "x"}],
)
def test_a_damaged_curve_says_so(change: dict[str, object]) -> None:
    damaged = json.loads(json.dumps(snapshot().to_json()))
    damaged["curve"].update(change)
    with pytest.raises(ValueError, match=r"^damaged reuse report: ValueError"):
        ReuseSnapshot.from_json(damaged)
