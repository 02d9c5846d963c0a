"""``lmcachectl reuse report``, over reports that a tracker wrote."""

import json
import os
from pathlib import Path

import pytest
from bench.parts.reuse_traces import conversation_trace, with_digests

from lmcache_core import ChunkReuseTracker, ReuseReports, ReuseSnapshot
from lmcache_core.cli.main import main
from lmcache_core.cli.reuse_text import span

MIB = 1 << 20


def write(folder: Path, *, accesses: int = 20_000, rate: int = 1, chunk_bytes: int = MIB, cap: int = 1 << 20) -> Path:
    tracker = ChunkReuseTracker(sample_rate=rate, table_cap=cap, clock=lambda: 0.0)
    for number, digests in enumerate(with_digests(conversation_trace(accesses) if accesses else [])):
        tracker.observe(digests, float(number), found=1)
    return ReuseReports(folder).write(ReuseSnapshot.of(tracker, chunk_tokens=256, chunk_bytes=chunk_bytes))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "lmcache/reuse"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["reuse", "report", *arguments]) == 0
    return capsys.readouterr().out


def test_the_newest_report_of_the_users_folder_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = write(folder), write(folder)
    os.utime(old, (1_700_000_000, 1_700_000_000))
    assert shown(capsys).splitlines()[0].startswith(f"{new.name}, written ")
    assert shown(capsys).splitlines()[0].endswith(f" ago; 1 more in {folder}")


def test_the_folder_of_the_configuration_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "own")
    config = tmp_path / "lmcache.toml"
    config.write_text(f'[extra_config.reuse]\nreport_folder = "{tmp_path / "own"}"\n')
    assert path.name in shown(capsys, "--config", str(config))


def test_the_summary_has_the_ideal_hit_rate_and_what_was_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = conversation_trace(20_000)
    chunks, accesses = len({chunk for one in trace for chunk in one}), sum(map(len, trace))
    text = shown(capsys, str(write(tmp_path)))
    assert f"chunks asked for   {accesses}\n" in text
    assert f"served             {100 * len(trace) / accesses:.1f} %\n" in text
    assert f"ideal hit rate     {100 * (1 - chunks / accesses):.1f} %, by a cache without limits\n" in text


def test_classes_make_up_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(write(tmp_path))).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("class "))
    rows = [line.split() for line in lines[start + 1 : start + 5]]
    assert [row[0] for row in rows] == ["once", "burst", "daily", "shared_prefix"]
    assert sum(float(row[1]) for row in rows) == pytest.approx(100, abs=0.3)


def test_the_curve_is_plotted_with_the_size_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(write(tmp_path)), "--capacity", "1")
    assert "miss ratio over the size of the cache; ^ is its size now\n100 % |" in text
    assert text.count("^") == 2


def test_more_memory_says_what_it_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    curve = json.loads(path.read_text())
    text = shown(capsys, str(path), "--capacity", "1", "--add", "1", "--add", "9")
    rows = [line for line in text.splitlines() if line.startswith(("now ", "+1 ", "+9 "))]
    now, more = (ReuseSnapshot.from_json(curve).curve.miss_ratio(size).share for size in (1024, 2048))
    assert rows[0].split() == ["now", "1", "GiB", "1024", f"{100 * now:.1f}", "%"]
    assert rows[1].split() == ["+1", "GiB", "2048", f"{100 * more:.1f}", "%", f"{100 * (now - more):+.1f}", "points"]
    assert len(rows) == 3


def test_the_size_is_the_configurations_where_none_is_named(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder)
    config = tmp_path / "lmcache.toml"
    config.write_text('max_local_cpu_size = 2.0\nlocal_disk = "/tmp/x"\nmax_local_disk_size = 3.0\n')
    assert "\nnow 5 GiB " in shown(capsys, "--config", str(config))


def test_a_full_table_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(write(tmp_path, cap=500)), "--capacity", "1")
    assert "were retired because the table was full; raise table_cap or sample_rate\n" in text
    assert "beyond what the table remembers" in text


def test_a_coarse_sample_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(write(tmp_path, rate=64)), "--capacity", "1")
    assert "note: the sample is coarse at these sizes; lower sample_rate, 64 now, to tell more\n" in text


def test_before_the_first_lookup_there_is_nothing_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, str(write(tmp_path, accesses=0))).splitlines()[1:] == [
        "observed for 0 s since the start; every chunk is tracked, 0 now",
        "no lookup yet",
    ]


def test_before_the_first_store_sizes_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(write(tmp_path, chunk_bytes=0)))
    assert text.endswith("\nwhat more memory would give is not known: nothing was stored yet\n")


def test_json_has_the_curves_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads(shown(capsys, str(write(tmp_path)), "--json"))
    assert [point["chunks"] for point in value["points"]][:4] == [1, 2, 4, 8]
    assert value["points"][-1]["miss_ratio"] <= value["points"][0]["miss_ratio"]


def test_no_report_says_how_to_get_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse", "report"]) == 1
    assert capsys.readouterr().err == (
        f"error: no reuse report in {folder}; set enabled = true in [extra_config.reuse], restart the cache and send requests\n"
    )


def test_a_file_that_is_not_there_is_the_users_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reuse", "report", str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'gone'}: no such file or directory\n"


def test_a_file_that_is_no_report_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert main(["reuse", "report", str(path)]) == 1
    assert capsys.readouterr().err == f"error: {path}: no reuse report\n"


def test_times_are_written_in_their_largest_unit() -> None:
    assert [span(seconds) for seconds in (0.25, 1, 90, 3600, 259_200)] == ["0.25 s", "1 s", "1.5 min", "1 h", "3 d"]
