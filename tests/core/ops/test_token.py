import logging
import os
import stat
from pathlib import Path

import pytest

from lmcache_core.ops.token import TokenFile, token_files
from lmcache_core.runtime_dir import runtime_dirs

CONFIGURED = "a-configured-token"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "run").mkdir()
    return {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}


def test_a_token_that_is_made_up_is_long_and_new_each_time() -> None:
    first, second = TokenFile(), TokenFile()

    assert len(first.token) >= 40
    assert first.token != second.token


def test_it_is_where_the_command_line_looks_for_it(environ: dict[str, str]) -> None:
    token = TokenFile(environ=environ)
    token.publish(6999)

    assert token.path in token_files(6999, environ)
    assert token.path is not None
    assert token.path.read_text() == token.token


def test_only_the_user_of_the_cache_can_read_it(environ: dict[str, str]) -> None:
    token = TokenFile(environ=environ)
    token.publish(6999)
    assert token.path is not None

    assert stat.S_IMODE(token.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.path.parent.stat().st_mode) == 0o700


def test_a_configured_one_is_never_written(environ: dict[str, str], tmp_path: Path) -> None:
    token = TokenFile(CONFIGURED, environ)
    token.publish(6999)

    assert (token.token, token.path) == (CONFIGURED, None)
    assert list((tmp_path / "run").iterdir()) == []


def test_it_is_gone_after_the_end(environ: dict[str, str]) -> None:
    token = TokenFile(environ=environ)
    token.publish(6999)
    path = token.path
    token.withdraw()

    assert path is not None
    assert not path.exists()
    assert token.path is None


def test_one_that_another_process_has_replaced_stays(environ: dict[str, str]) -> None:
    first, second = TokenFile(environ=environ), TokenFile(environ=environ)
    first.publish(6999)
    second.publish(6999)
    first.withdraw()

    assert second.path is not None
    assert second.path.read_text() == second.token


def test_without_a_runtime_directory_it_is_in_the_temporary_folder(tmp_path: Path) -> None:
    folders = runtime_dirs({"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": "/nowhere/at/all"})

    assert folders[-1] == tmp_path / f"lmcache-core-{os.getuid()}"
    assert Path("/nowhere/at/all/lmcache-core") not in folders


@pytest.mark.parametrize("prepare", ["open", "link", "file"])
def test_a_folder_that_another_user_may_have_prepared_is_not_used(
    prepare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "lmcache-core"
    monkeypatch.setattr("lmcache_core.ops.token.runtime_dirs", lambda _environ: (folder,))
    if prepare == "open":
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
    elif prepare == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "target")
    else:
        folder.write_text("")
    token = TokenFile()
    token.publish(6999)

    assert token.path is None
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().endswith("nothing can be changed over HTTP until internal_api_server_token is set")
    assert token.token not in caplog.text


def test_it_is_never_shown(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = TokenFile(environ=environ)
    token.publish(6999)
    token.withdraw()

    assert token.token not in f"{token!r} {token} {caplog.text}"
