"""Reading LMCache's YAML, with the line of each key. PyYAML is an optional extra."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lmcache_core.config.origin import KeyPath
from lmcache_core.errors import ConfigError

INSTALL = "pip install 'lmcache-core[yaml]'"


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML file.

    Attributes:
        values: Its mapping; empty for an empty file.
        lines: Line of each key.
        repeated: Keys that are written twice; the last one counts.
    """

    values: dict[str, Any]
    lines: dict[KeyPath, int]
    repeated: tuple[KeyPath, ...]


def read_yaml(text: str, *, place: str) -> YamlDocument:
    """Read YAML safely: no tags that make objects.

    Args:
        text: The file's content.
        place: The file, for messages.

    Raises:
        ConfigError: PyYAML is not installed, or the text is not a YAML mapping. Quotes nothing of it.
    """
    try:
        import yaml  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise ConfigError(f"reading YAML needs PyYAML; run: {INSTALL}") from None
    problem = ""
    node, values = None, None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem = f"{place}:{mark.line + 1 if mark else 1}: is not valid YAML: {error.problem}"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = f"{place}: is not valid YAML ({type(error).__name__})"
    if problem:
        # Raised outside the handler: PyYAML's error quotes the text, secrets included.
        raise ConfigError(problem)
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"{place}: holds no keys; a configuration is a YAML mapping such as chunk_size: 256")
    keys = list(_keys(node, ())) if node is not None else []
    lines: dict[KeyPath, int] = {}
    repeated = []
    for path, line in keys:
        if path in lines:
            repeated.append(path)
        lines[path] = line
    return YamlDocument({str(key): value for key, value in (values or {}).items()}, lines, tuple(repeated))


def _keys(node: Any, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if not hasattr(node, "value") or node.id != "mapping":
        return
    for key, value in node.value:
        here = (*path, str(key.value))
        yield here, key.start_mark.line + 1
        if not path:
            yield from _keys(value, here)
