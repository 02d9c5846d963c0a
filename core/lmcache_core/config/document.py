"""Reading the configuration file."""

from __future__ import annotations

from pathlib import Path

import tomli

from lmcache_core.config.lines import key_lines
from lmcache_core.config.origin import Layer, shown_path
from lmcache_core.errors import ConfigError

_BOMS = (
    (b"\xef\xbb\xbf", "UTF-8"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_YAML = {".yaml", ".yml"}
_LARGEST_BYTES = 4 * 1024 * 1024


def read_document(path: Path, *, named_by: str) -> Layer:
    """Read a TOML file. An empty file is an empty configuration.

    Args:
        path: As the user wrote it.
        named_by: What named the file, such as ``LMCACHE_CONFIG_FILE``; for messages.

    Raises:
        ConfigError: The file is missing, unreadable or not TOML; the sentence names it and what named it.
    """
    place = shown_path(path)
    text = read_text(path, named_by=named_by)
    try:
        tree = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        problem = _syntax_problem(path, place, str(error))
    except RecursionError:
        problem = f"{place}: is nested too deeply; a configuration needs few levels"
    except ValueError:
        problem = f"{place}: holds a number of thousands of digits; no key takes that"
    else:
        return Layer(kind="file", tree=tree, place=place, lines=key_lines(text))
    # Raised outside the handler: tomli's error holds the whole text, secrets included.
    raise ConfigError(problem)


def read_text(path: Path, *, named_by: str) -> str:
    """Read a configuration's text.

    Raises:
        ConfigError: The file is missing, unreadable, far too large, or not UTF-8 without byte order mark.
    """
    place = shown_path(path)
    return _decode(_read(path, f"{named_by}: config file '{place}'"), place)


def _read(path: Path, who: str) -> bytes:
    if "\x00" in str(path):
        raise ConfigError(f"{who} has a null character in its name")
    try:
        if path.is_dir():
            raise ConfigError(f"{who} is a directory; name a TOML file")
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{who} does not exist; create it or correct the name") from None
    except PermissionError:
        raise ConfigError(f"{who} cannot be read: no permission") from None
    except OSError as error:
        raise ConfigError(f"{who} cannot be read: {(error.strerror or type(error).__name__).lower()}") from None
    if len(data) > _LARGEST_BYTES:
        raise ConfigError(f"{who} is larger than {_LARGEST_BYTES} bytes; that is no configuration")
    return data


def _decode(data: bytes, place: str) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            raise ConfigError(
                f"{place}: begins with a byte order mark ({encoding}), which TOML does not allow; "
                "save the file as UTF-8 without BOM"
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    raise ConfigError(f"{place}:{line}: is not UTF-8; save the file as UTF-8")


def _syntax_problem(path: Path, place: str, message: str) -> str:
    if path.suffix.lower() in _YAML:
        return f"{place}: is YAML, this product reads TOML; run: lmcachectl config convert {place}"
    what, separator, position = message.partition(" (at line ")
    if not separator:
        return f"{place}: is not valid TOML: {message[:1].lower()}{message[1:]}"
    line = position.partition(",")[0]
    column = position.rpartition(" ")[2].rstrip(")")
    return f"{place}:{line}: is not valid TOML: {what[:1].lower()}{what[1:]} (column {column})"
