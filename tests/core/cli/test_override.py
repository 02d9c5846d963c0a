import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.cli.running import TOKEN, running_cache

from lmcache_core import CacheManager
from lmcache_core.cli.main import main

BYPASS = ["health", "override", "RemoteBackend", "--bypass", "--owner", "alice", "--reason", "kernel update"]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Token files of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "bob")
    return tmp_path


@pytest.fixture
def cache(tmp_path: Path, runtime: Path) -> Iterator[CacheManager]:
    with running_cache(tmp_path) as cache:
        yield cache


def at(cache: CacheManager) -> list[str]:
    assert cache.http is not None
    return ["--url", str(cache.http.address)]


def test_bypass_leaves_the_store_out(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*BYPASS, "--ttl", "30m", *at(cache)])
    printed = capsys.readouterr()

    assert code == 0
    assert re.fullmatch(
        r"RemoteBackend is left out of reads and writes until (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d "
        r"\((29|30) min\), operator:alice: kernel update\n",
        printed.out,
    )
    assert printed.err == "note: every store is left out of reads now: only CPU memory serves\n"
    assert cache.storage.bypassed() == {"RemoteBackend": ("operator:alice",)}


@pytest.mark.parametrize(("option", "sides"), [("--reads-only", (True, False)), ("--writes-only", (False, True))])
def test_one_side_alone(cache: CacheManager, option: str, sides: tuple[bool, bool]) -> None:
    main([*BYPASS, option, *at(cache)])
    bypass = cache.tiers[0].bypass

    assert (bypass.reads, bypass.writes) == sides


def test_remove_ends_it(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    main([*BYPASS, *at(cache)])
    capsys.readouterr()
    code = main(["health", "override", "RemoteBackend", "--remove", "--owner", "alice", *at(cache)])

    assert (code, capsys.readouterr().out) == (0, "the override of RemoteBackend by operator:alice has ended\n")
    assert cache.storage.bypassed() == {}


def test_the_owner_is_the_login_name_where_left_out(cache: CacheManager) -> None:
    main(["health", "override", "RemoteBackend", "--bypass", "--reason", "x", *at(cache)])

    assert cache.storage.bypassed() == {"RemoteBackend": ("operator:bob",)}


def test_the_audit_log_names_who_asked(cache: CacheManager, tmp_path: Path) -> None:
    main([*BYPASS, *at(cache)])
    main(["health", "override", "RemoteBackend", "--remove", "--owner", "alice", *at(cache)])
    lines = [json.loads(line) for line in (tmp_path / "state" / "cache.audit.jsonl").read_text().splitlines()]

    assert [(line["event"], line["owner"], line["by"]) for line in lines] == [
        ("added", "alice", "bob"),
        ("removed", "alice", "bob"),
    ]


def test_drain_writes_what_waits_and_leaves_the_store_out(
    cache: CacheManager, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["health", "drain", "RemoteBackend", "--owner", "alice", "--reason", "move", *at(cache)])

    assert code == 0
    assert capsys.readouterr().out.startswith(
        "all chunks for RemoteBackend were written\nRemoteBackend is left out of reads and writes until "
    )
    assert cache.storage.bypassed() == {"RemoteBackend": ("operator:alice",)}


def test_overrides_lists_them(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    main([*BYPASS, "--reads-only", *at(cache)])
    capsys.readouterr()
    code = main(["health", "overrides", *at(cache)])
    header, row = capsys.readouterr().out.splitlines()

    assert code == 0
    assert header.split() == ["backend", "leaves", "out", "owner", "left", "until", "reason"]
    assert re.match(r"RemoteBackend  reads       alice  (59|60) min  ", row)
    assert row.endswith("kernel update")


def test_overrides_as_json_is_the_page(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    main(["health", "overrides", "--json", *at(cache)])

    assert json.loads(capsys.readouterr().out) == {"overrides": [], "persistent": True}


def test_without_any_it_says_so(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    main(["health", "overrides", *at(cache)])

    assert capsys.readouterr().out == "no override is in force\n"


def test_one_that_would_not_outlive_the_process_says_so(
    tmp_path: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_cache(tmp_path, health_state_dir=None) as cache:
        main([*BYPASS, "--writes-only", *at(cache)])
        told = capsys.readouterr().err
        main(["health", "overrides", *at(cache)])

    assert told == "note: it ends with the process, as no health_state_dir is configured or usable\n"
    assert capsys.readouterr().out.endswith(
        "\noverrides of this cache end with its process, as it has no health_state_dir that it can use\n"
    )


# -- who may --------------------------------------------------------------------------


def test_another_user_is_refused_before_anything_is_sent(
    cache: CacheManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    code = main([*BYPASS, *at(cache)])

    assert code == 1
    assert capsys.readouterr().err.startswith("error: changing a running cache needs its token; ")
    assert cache.storage.bypassed() == {}


def test_a_wrong_token_is_refused(
    cache: CacheManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LMCACHE_INTERNAL_API_SERVER_TOKEN", "canary-of-a-wrong-token")
    code = main([*BYPASS, *at(cache)])

    assert code == 1
    assert capsys.readouterr().err == (
        "error: the token is wrong: send internal_api_server_token of this instance, or what its token file holds\n"
    )
    assert cache.storage.bypassed() == {}


def test_a_configured_token_is_needed_and_never_written(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_cache(tmp_path, internal_api_server_token=TOKEN) as cache:
        before = main([*BYPASS, *at(cache)])
        monkeypatch.setenv("LMCACHE_INTERNAL_API_SERVER_TOKEN", TOKEN)
        after = main([*BYPASS, *at(cache)])

    assert (before, after) == (1, 0)
    assert [path for path in runtime.rglob("*") if path.is_file() and TOKEN in path.read_text(errors="replace")] == []


def test_the_token_file_is_private_and_goes_with_the_cache(tmp_path: Path, runtime: Path) -> None:
    with running_cache(tmp_path):
        (file,) = (runtime / "lmcache-core").iterdir()
        mode = stat.S_IMODE(file.stat().st_mode)

    assert mode == 0o600
    assert list((runtime / "lmcache-core").iterdir()) == []


# -- what is wrong --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["RemoteBackend"], "say what to do: --bypass or --remove"),
        (["RemoteBackend", "--bypass", "--remove"], "say what to do: --bypass or --remove"),
        (["RemoteBackend", "--bypass"], "--reason is needed: one line for those who find the override"),
        (
            ["RemoteBackend", "--bypass", "--reason", "x", "--reads-only", "--writes-only"],
            "--reads-only and --writes-only exclude each other; leave both away for both",
        ),
        (
            ["RemoteBackend", "--bypass", "--reason", "x", "--ttl", "30"],
            "invalid value for '--ttl': '30' is no time; write a number with its unit, such as 90s, 30m, 2h or 1d",
        ),
    ],
)
def test_a_wrong_command_ends_with_2(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["health", "override", *words])

    assert code == 2
    assert capsys.readouterr().err == f"error: {sentence}\nsee: lmcachectl health override --help\n"


def test_what_the_cache_refuses_is_its_sentence(cache: CacheManager, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["health", "override", "Remote", "--bypass", "--reason", "x", *at(cache)])

    assert code == 2
    assert capsys.readouterr().err == "error: backend 'Remote' cannot be left out; those that can: RemoteBackend\n"


def test_nobody_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LMCACHE_INTERNAL_API_SERVER_TOKEN", TOKEN)
    code = main([*BYPASS, "--url", "http://127.0.0.1:1"])

    assert code == 1
    assert capsys.readouterr().err == (
        "error: no cache answers at http://127.0.0.1:1/health/overrides: connection refused; start the cache with "
        "internal_api_server_enabled = true, or name its address with --url\n"
    )
