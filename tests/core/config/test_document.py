from __future__ import annotations

from pathlib import Path

import pytest

from lmcache_core.config.document import read_document
from lmcache_core.config.sources import read_sources
from lmcache_core.errors import ConfigError


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_document(path, named_by="--config")
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(data: bytes, name: str = "c.toml") -> Path:
    Path(name).write_bytes(data)
    return Path(name)


def test_an_empty_file_is_an_empty_configuration() -> None:
    assert read_document(write(b""), named_by="--config").tree == {}


def test_a_missing_file() -> None:
    assert refused(Path("none.toml")) == (
        "--config: config file 'none.toml' does not exist; create it or correct the name"
    )


def test_a_directory() -> None:
    Path("d").mkdir()
    assert refused(Path("d")) == "--config: config file 'd' is a directory; name a TOML file"


def test_a_file_under_a_file() -> None:
    write(b"", "f")
    assert refused(Path("f/c.toml")) == "--config: config file 'f/c.toml' cannot be read: not a directory"


def test_a_link_to_nothing() -> None:
    Path("c.toml").symlink_to("gone")
    assert refused(Path("c.toml")) == "--config: config file 'c.toml' does not exist; create it or correct the name"


def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", no)  # root may read anything, so the kernel cannot be asked
    assert refused(Path("c.toml")) == "--config: config file 'c.toml' cannot be read: no permission"


def test_a_null_character() -> None:
    assert refused(Path("a\x00b")) == "--config: config file 'a\\x00b' has a null character in its name"


def test_a_very_long_name() -> None:
    assert refused(Path("x" * 300)).endswith("cannot be read: file name too long")


def test_a_huge_file() -> None:
    with Path("c.toml").open("wb") as file:
        file.truncate(5 << 20)
    assert refused(Path("c.toml")) == (
        "--config: config file 'c.toml' is larger than 4194304 bytes; that is no configuration"
    )


@pytest.mark.parametrize(
    ("mark", "encoding"), [(b"\xef\xbb\xbf", "UTF-8"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")]
)
def test_a_byte_order_mark(mark: bytes, encoding: str) -> None:
    assert refused(write(mark + b"a = 1")) == (
        f"c.toml: begins with a byte order mark ({encoding}), which TOML does not allow; "
        "save the file as UTF-8 without BOM"
    )


def test_latin_1() -> None:
    assert refused(write("a = 1\nb = 'ü'\n".encode("latin-1"))) == "c.toml:2: is not UTF-8; save the file as UTF-8"


@pytest.mark.parametrize(
    ("text", "place", "column"),
    [
        (b"a = 1\nb = \n", "c.toml:2", " (column 5)"),
        (b"a = 1\na = 2\n", "c.toml:2", " (column 6)"),
        (b"secret = canary\n", "c.toml:1", " (column 10)"),
        (b"[a\n", "c.toml:1", " (column 3)"),
        (b"a = '", "c.toml", ""),
    ],
)
def test_syntax_names_the_place_and_quotes_nothing(text: bytes, place: str, column: str) -> None:
    message = refused(write(text))
    assert message.startswith(f"{place}: is not valid TOML: ")  # what follows is tomli's, and changes with it
    assert message.endswith(column)
    assert "canary" not in message


def test_deep_nesting() -> None:
    assert "c.toml" in refused(write(b"a = " + b"[" * 5000 + b"]" * 5000))


def test_yaml_names_the_converter() -> None:
    assert refused(write(b"chunk_size: 256\n", "old.yaml")) == (
        "old.yaml: is YAML, this product reads TOML; run: lmcachectl config convert old.yaml"
    )


def test_the_option_wins_over_the_variable() -> None:
    write(b"chunk_size = 1", "a.toml")
    sources = read_sources(config_file=Path("a.toml"), environ={"LMCACHE_CONFIG_FILE": "b.toml"})
    assert sources.file == Path("a.toml")


def test_the_variable_wins_over_the_folder() -> None:
    write(b"chunk_size = 1", "a.toml")
    write(b"chunk_size = 2", "lmcache.toml")
    assert read_sources(config_file=None, environ={"LMCACHE_CONFIG_FILE": "a.toml"}).document.tree == {"chunk_size": 1}


def test_the_folders_own_file() -> None:
    write(b"chunk_size = 2", "lmcache.toml")
    assert read_sources(config_file=None, environ={}).file == Path("lmcache.toml")


def test_no_file() -> None:
    assert read_sources(config_file=None, environ={}).file is None


def test_a_missing_file_that_a_variable_names() -> None:
    with pytest.raises(ConfigError) as caught:
        read_sources(config_file=None, environ={"LMCACHE_CONFIG_FILE": "gone.toml"})
    assert str(caught.value) == (
        "LMCACHE_CONFIG_FILE: config file 'gone.toml' does not exist; create it or correct the name"
    )


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_variable(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_sources(config_file=None, environ={"LMCACHE_CONFIG_FILE": value})
    assert str(caught.value) == "LMCACHE_CONFIG_FILE: is empty; give the path of a TOML file, or unset it"


def test_an_empty_option() -> None:
    with pytest.raises(ConfigError) as caught:
        read_sources(config_file=Path(), environ={})
    assert str(caught.value) == "--config: names no file; give the path of a TOML file"


def test_a_folder_named_like_the_file_is_refused() -> None:
    Path("lmcache.toml").mkdir()
    with pytest.raises(ConfigError, match="is a directory"):
        read_sources(config_file=None, environ={})


def test_a_device_that_never_ends_is_refused() -> None:
    assert "larger than" in refused(Path("/dev/zero"))
