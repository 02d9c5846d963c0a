"""From LMCache's YAML keys to ours, with a note on every key that is not taken over as it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from lmcache_core.config import telemetry
from lmcache_core.config.fields import fields_of, strict_errors
from lmcache_core.config.lmcache_names import MOONCAKE_KEYS, RETIRED_KEYS, UNUSED_KEYS, is_unused_extra
from lmcache_core.config.model import CoreConfig, ExtraConfig
from lmcache_core.config.nearest import suggestion
from lmcache_core.config.origin import KeyPath, Tree, key_text
from lmcache_core.config.secrets import shows_input
from lmcache_core.config.sentences import sentence
from lmcache_core.config.words import read_text
from lmcache_core.contracts.url import StoreURL

_EXTRA: Final = "extra_config"
_OURS: Final = frozenset({"plugins", "remotes", "tenants", _EXTRA})
_PLUGIN_LISTS: Final = frozenset(
    {"external_backends", "plugin_locations", "remote_storage_plugins", "runtime_plugin_locations", "storage_plugins"}
)
_NAMESPACES: Final = frozenset(
    {"external_backend", "plugin", "remote_storage_plugin", "runtime_plugin", "storage_plugin"}
)
_EXTERNAL: Final = "external"
_WORD_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_IN_TABLE: Final = re.compile(r"[^a-z0-9_]+")


@dataclass(slots=True)
class Conversion:
    """What a YAML configuration came to.

    Attributes:
        schemes: URL schemes that loaded plugins serve.
        tree: Our keys.
        notes: Path and sentence for each key that was dropped, moved or rewritten; no values but numbers and words.
    """

    schemes: Collection[str]
    tree: Tree = field(default_factory=dict, repr=False)
    notes: list[tuple[KeyPath, str]] = field(default_factory=list)
    _store_table: str = ""

    def convert(self, old: Mapping[str, Any]) -> None:
        """Take over every key, or note why not."""
        self._address(old.get("remote_url"))
        for key, value in old.items():
            if key != _EXTRA:
                self._top(key, value)
        if _EXTRA in old:
            self._extra_config(old[_EXTRA])

    def _note(self, path: KeyPath, text: str) -> None:
        self.notes.append((path, text))

    def _address(self, url: object) -> None:
        """Find out whose table the store's own keys go to."""
        if not isinstance(url, str):
            return
        scheme, separator, _ = url.strip().lower().partition("://")
        if not separator or not StoreURL.is_scheme(scheme):
            return
        if scheme == _EXTERNAL:
            self._external(url)
        elif scheme not in self.schemes:
            self._store_table = _table_name(scheme)
            text = f"kept; no loaded plugin serves {scheme}://, so config check refuses it until one does"
            self._note(("remote_url",), text)

    def _external(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            return
        module = parts.path.strip("/")
        name = next(iter(parse_qs(parts.query).get("connector_name", [])), module.rpartition(".")[2])
        self._store_table = _table_name(name) or _EXTERNAL
        self._put((_EXTRA, self._store_table, "module_path"), module)
        self._put((_EXTRA, self._store_table, "class_name"), name)
        self._note(
            ("remote_url",),
            "dropped: external:// names a Python class in an address; write a storage plugin with a scheme of its own "
            f"that owns table {self._store_table!r}, where module and class now stand, and name its address here",
        )

    def _top(self, key: str, value: object) -> None:
        if key == "remote_url" and str(value).strip().lower().startswith(f"{_EXTERNAL}://"):
            return
        if key in CoreConfig.model_fields and key not in _OURS:
            self._known((key,), value)
        elif telemetry.owns_key(key):
            self._put((key,), value)
        elif key in ExtraConfig.model_fields:
            self._note((key,), f"moved to {_EXTRA}.{key}; was its indent lost?")
            self._known((_EXTRA, key), value)
        else:
            self._note((key,), _why_dropped(key))

    def _extra_config(self, extra: object) -> None:
        if extra is None:
            self._note((_EXTRA,), "is empty; was the indent of the keys below it lost?")
        elif not isinstance(extra, Mapping):
            self._note((_EXTRA,), "dropped: must be a table")
        else:
            for key, value in extra.items():
                self._extra(str(key), value)

    def _extra(self, key: str, value: object) -> None:
        path = (_EXTRA, key)
        if key in ExtraConfig.model_fields:
            self._known(path, value)
        elif "." in key:
            self._dotted(key, value)
        elif isinstance(value, Mapping):
            self._move(path, (_EXTRA, _table_name(key)), value)
        elif self._store_table and (not is_unused_extra(key) or key in MOONCAKE_KEYS):
            self._move(path, (_EXTRA, self._store_table, key), value)
        elif is_unused_extra(key):
            self._note(path, "dropped: LMCache's own, nothing here takes its place")
        else:
            near = suggestion(key, ExtraConfig.model_fields)
            self._note(path, f"dropped: neither LMCache nor this product has such a key{near}")

    def _dotted(self, key: str, value: object) -> None:
        parts = [part for part in key.split(".") if part]
        if len(parts) > 2 and parts[0] in _NAMESPACES:  # noqa: PLR2004 - namespace, plugin, key
            parts = parts[1:]
        if len(parts) < 2:  # noqa: PLR2004 - table and key
            self._note((_EXTRA, key), "dropped: neither LMCache nor this product has such a key")
            return
        self._move((_EXTRA, key), (_EXTRA, _table_name(parts[0]), "_".join(parts[1:])), value)

    def _move(self, old: KeyPath, new: KeyPath, value: object) -> None:
        text = f"moved to [{key_text(new[:2])}]" if len(new) == 2 else f"moved to {key_text(new)}"  # noqa: PLR2004 - a table
        self._note(old, f"{text}; it needs a plugin that owns table {new[1]!r}")
        self._put(new, value)

    def _known(self, path: KeyPath, value: object) -> None:
        """Take over a key of ours, text turned into what the field wants."""
        key = str(path[-1])
        found = fields_of(CoreConfig if len(path) == 1 else ExtraConfig)[key]
        if value is None:
            self._note(path, "left out: null means its default")
            return
        errors = strict_errors(found, value)
        if not errors or key == "remote_url":
            self._put(path, value)
            return
        if isinstance(value, str):
            read, still = read_text(found, value.strip())
            if not still:
                self._put(path, read)
                self._note(path, f"rewritten: the text {value!r} as {str(read).lower()}")
                return
        shows = shows_input(key, found, value, is_core=True)
        self._note(path, f"dropped: {sentence(errors[0], shows_input=shows, kind='file')}")

    def _put(self, path: KeyPath, value: object) -> None:
        table = self.tree
        for key in path[:-1]:
            table = table.setdefault(str(key), {})
        kept = self._without_null(value, path)
        if kept is not None:
            table[str(path[-1])] = kept

    def _without_null(self, value: Any, path: KeyPath) -> Any:
        if value is None:
            self._note(path, "left out: TOML has no null")
            return None
        if isinstance(value, Mapping):
            parts = {str(key): self._without_null(part, (*path, str(key))) for key, part in value.items()}
            return {key: part for key, part in parts.items() if part is not None}
        if isinstance(value, list | tuple):
            items = [self._without_null(part, (*path, index)) for index, part in enumerate(value)]
            return [part for part in items if part is not None]
        return value


def _why_dropped(key: str) -> str:
    if key in RETIRED_KEYS:
        return f"dropped: retired by LMCache; {RETIRED_KEYS[key]}"
    if key in _PLUGIN_LISTS:
        return "dropped: plugins are found by their entry points; installing one is enough"
    if key in UNUSED_KEYS:
        return "dropped: LMCache's own, nothing here takes its place"
    if is_unused_extra(key):
        return f"dropped: LMCache reads it under {_EXTRA} (was its indent lost?), and nothing here takes its place"
    return f"dropped: neither LMCache nor this product has such a key{suggestion(key, CoreConfig.model_fields)}"


def _table_name(name: str) -> str:
    """Make a table's name: ``ExampleKVConnector`` becomes ``example_kv_connector``."""
    return _NOT_IN_TABLE.sub("_", _WORD_BREAK.sub("_", name).lower()).strip("_")
