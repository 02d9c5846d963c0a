"""The ``LMCACHE_*`` variables: which are ours, and what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from lmcache_core.config.fields import field_at, item_model, leaf_paths, table_model
from lmcache_core.config.items import ItemLeaf, split_path
from lmcache_core.config.origin import KeyPath, Layer, key_text
from lmcache_core.config.secrets import shows_input
from lmcache_core.config.sentences import sentence
from lmcache_core.config.words import read_text

PREFIX: Final = "LMCACHE_"
DELIMITER: Final = "__"
CONFIG_FILE: Final = "LMCACHE_CONFIG_FILE"

_SERVICE: Final = re.compile(
    r"LMCACHE_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT: Final = re.compile(r"LMCACHE_(?:[A-Z0-9_]+_)?PORT")
_SERVICE_ADDRESS: Final = re.compile(r"(?:tcp|udp|sctp)://")


@dataclass(slots=True)
class Environment:
    """What the variables came to.

    Attributes:
        layer: Claimed variables as a tree of typed values.
        wrong: Path, variable and sentence of each value that cannot be read.
        items: Values of single keys within entries of lists, which have no place of their own in a tree.
    """

    layer: Layer
    items: list[ItemLeaf] = field(default_factory=list)
    wrong: list[tuple[KeyPath, str]] = field(default_factory=list)


def is_ours(name: str) -> bool:
    """Tell whether a variable has the prefix, in whatever case."""
    return name.upper().startswith(PREFIX)


def is_service(name: str, text: str) -> bool:
    """Tell whether Kubernetes or Docker set a variable because a service is called ``lmcache...``."""
    if _SERVICE_PORT.fullmatch(name) and _SERVICE_ADDRESS.match(text):
        return True
    return _SERVICE.fullmatch(name) is not None


def variable_path(name: str) -> KeyPath:
    """Give the key that a variable names, known or not."""
    return tuple(name.removeprefix(PREFIX).lower().split(DELIMITER))


def variable_name(path: KeyPath) -> str:
    """Give the variable that names a key."""
    return PREFIX + DELIMITER.join(str(key) for key in path).upper()


def variable_names(model: type[BaseModel]) -> list[str]:
    """Give every variable that a model claims, whole tables left out."""
    return [variable_name(path) for path in leaf_paths(model)]


def claims(model: type[BaseModel], name: str) -> bool:
    """Tell whether a model has the key that a variable names, spelt exactly."""
    path = variable_path(name)
    return variable_name(path) == name and "" not in path and _claimed_field(model, path) is not None


def read_environment(model: type[BaseModel], variables: Mapping[str, str], core_keys: frozenset[str]) -> Environment:
    """Read claimed variables into one tree, single leaves over whole tables.

    Args:
        model: What claims them.
        variables: Name to text, each claimed.
        core_keys: Top-level and health keys, whose wrong values may be shown.
    """
    result = Environment(Layer("env", {}, variables={variable_path(name): name for name in variables}))
    texts: dict[str, str] = {}
    for name, text in sorted(variables.items()):
        path = variable_path(name)
        found = _claimed_field(model, path)
        if found is None:
            continue
        value, problem = _read(found, text, name=str(path[-1]), is_core=_is_core(path, core_keys))
        split = split_path(model, path)
        if problem:
            result.wrong.append((path, problem))
        elif split is not None:
            result.items.append(ItemLeaf(name, split, value))
        else:
            texts[name] = json.dumps(value)
    result.layer.tree.update(_EnvironmentSource(model, texts)())
    return result


class _EnvironmentSource(EnvSettingsSource):
    """pydantic-settings' reading of nested names and its merging of leaves over JSON.

    Values reach it as JSON that our own strict reading has made, so it need not convert any; names
    reach it claimed, so it can ignore none.
    """

    def __init__(self, model: type[BaseModel], texts: Mapping[str, str]) -> None:
        fields: dict[str, Any] = {name: (found.annotation, None) for name, found in model.model_fields.items()}
        settings = create_model("Environment", __base__=BaseSettings, **fields)
        super().__init__(settings, env_prefix=PREFIX, env_nested_delimiter=DELIMITER)
        self.env_vars = {name.lower(): text for name, text in texts.items()}

    def field_is_complex(self, field: FieldInfo) -> bool:
        """Every value is JSON."""
        del field
        return True


def _claimed_field(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    split = split_path(model, path)
    return _field_of(model, path) if split is None else _field_of(split.model, split.rest)


def _field_of(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    found = field_at(model, path[:1])
    for length in range(2, len(path) + 1):
        if found is None or table_model(found.annotation) is None:
            return None
        found = field_at(model, path[:length])
    return found


def _is_core(path: KeyPath, core_keys: frozenset[str]) -> bool:
    return len(path) == 1 or path[0] == "plugins" or (len(path) > 1 and path[1] in core_keys)


def _read(found: FieldInfo, text: str, *, name: str, is_core: bool) -> tuple[Any, str]:
    if table_model(found.annotation) is not None:
        return _json_of(text, dict, 'must be a table as JSON, such as {"key": 1}')
    if item_model(found.annotation) is not None:
        return _json_of(text, list, 'must be a list of tables as JSON, such as [{"key": 1}]')
    value, errors = read_text(found, text)
    if not errors or (errors[0]["type"] == "value_error" and errors[0]["input"] == text):
        return value, ""  # a text that is wrong as an address, say, is judged with the file's
    error = errors[0]
    where = key_text(error["loc"])
    value = error["input"] if where else text
    shows = shows_input(name, found, value, is_core=is_core)
    problem = sentence({**error, "input": value}, shows_input=shows, kind="env")
    return None, f"item {where} {problem}" if where else problem


def _json_of(text: str, kind: type, wanted: str) -> tuple[Any, str]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return None, f"{wanted}; {error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
    except (RecursionError, ValueError):
        return None, f"{wanted}; it is nested too deeply, or holds a number of thousands of digits"
    return (value, "") if isinstance(value, kind) else (None, wanted)
