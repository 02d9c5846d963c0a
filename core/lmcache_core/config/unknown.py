"""Names that nobody claims: refused with the nearest known name, or set aside with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from lmcache_core.config import telemetry
from lmcache_core.config.environment import (
    CONFIG_FILE,
    PREFIX,
    claims,
    is_ours,
    is_service,
    variable_name,
    variable_names,
    variable_path,
)
from lmcache_core.config.fields import fields_of, item_model, leaf_paths, table_model
from lmcache_core.config.items import split_path
from lmcache_core.config.lmcache_names import (
    FOREIGN_VARIABLES,
    RETIRED_KEYS,
    RETIRED_VARIABLES,
    UNUSED_KEYS,
    is_unused_extra,
    is_unused_variable,
)
from lmcache_core.config.nearest import nearest, respelt, suggestion
from lmcache_core.config.origin import KeyPath, Layer, Origin, Tree
from lmcache_core.config.problem import Problem

EXTRA = "extra_config"


@dataclass(slots=True)
class Claims:
    """Sorts names into claimed, refused and set aside.

    Attributes:
        model: The model with every loaded plugin's table.
        unloaded: Plugin's name to why it is not loaded.
        knows_plugins: False before plugins are loaded: names under ``extra_config`` are not judged.
        problems: Refused names.
        unused: Names that LMCache knows and this project does not use.
        services: Variables that Kubernetes or Docker set.
        warnings: About telemetry keys.
    """

    model: type[BaseModel]
    unloaded: Mapping[str, str]
    knows_plugins: bool = True
    problems: list[Problem] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def of_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Give the variables that the model claims."""
        claimed = {}
        for name, text in sorted(environ.items()):
            if name in FOREIGN_VARIABLES:
                self.unused.append(name)
            elif is_ours(name) and self._claims_variable(name, text):
                claimed[name] = text
        return claimed

    def of_layer(self, layer: Layer) -> Tree:
        """Give a layer's tree without the keys that the model does not claim."""
        return self._table(self.model, layer.tree, (), layer)

    def _claims_variable(self, name: str, text: str) -> bool:
        if claims(self.model, name):
            return True
        origin = Origin("env", name, 0, variable_path(name))
        if name == CONFIG_FILE:
            return False
        if telemetry.owns_variable(name):
            self._warn(telemetry.judge_variable(name, text))
        elif is_service(name, text):
            self.services.append(name)
        elif is_unused_variable(name) or self._is_unused_leaf(name):
            self.unused.append(name)
        elif self.knows_plugins or EXTRA not in variable_path(name.upper()):
            self.problems.append(Problem(origin, origin.names, self._unknown_variable(name)))
        return False

    def _is_unused_leaf(self, name: str) -> bool:
        path = variable_path(name)
        return len(path) == 2 and path[0] == EXTRA and is_unused_extra(str(path[1]))  # noqa: PLR2004 - table and key

    def _unknown_variable(self, name: str) -> str:
        path = variable_path(name.upper())
        retired = RETIRED_KEYS.get(str(path[0]))
        if retired is not None:
            return f"retired by LMCache; {retired}"
        if name in RETIRED_VARIABLES:
            return f"unknown variable; {RETIRED_VARIABLES[name]}"
        if claims(self.model, name.upper()):
            return f"unknown variable; names are upper case, did you mean {name.upper()}?"
        return self._misspelt_variable(name.upper().removeprefix(PREFIX), path)

    def _misspelt_variable(self, stem: str, path: KeyPath) -> str:
        split = split_path(self.model, path)
        if split is not None:
            known = [variable_name((*split.place, split.entry, *leaf)) for leaf in leaf_paths(split.model)]
            return "unknown variable" + suggestion(PREFIX + stem, known, show=str)
        stems = [known.removeprefix(PREFIX) for known in variable_names(self.model)]
        meant = respelt(stem, stems)
        if meant is not None:
            return f"unknown variable; did you mean {PREFIX}{meant}?"
        if path[0] == EXTRA and len(path) > 2 and path[1] not in self._extra_fields():  # noqa: PLR2004 - table and key
            return self._unknown_table(str(path[1]))
        if path[0] in self._extra_fields():
            return f"unknown variable; did you mean {variable_name((EXTRA, *path))}?"
        return "unknown variable" + suggestion(stem, stems, show=PREFIX.__add__)

    def _table(self, model: type[BaseModel], tree: Mapping[str, Any], path: KeyPath, layer: Layer) -> Tree:
        known = fields_of(model)
        kept: Tree = {}
        for key, value in tree.items():
            here = (*path, key)
            if key not in known:
                if self._refuses(model, here, value, layer):
                    text = self._unknown_key(model, key, value) if path else self._unknown_top(key)
                    self.problems.append(Problem(layer.origin(here), here, text))
                continue
            table, item = table_model(known[key].annotation), item_model(known[key].annotation)
            if table is not None and not isinstance(value, dict):
                self.problems.append(Problem(layer.origin(here), here, "must be a table"))
            elif table is not None:
                kept[key] = self._table(table, value, here, layer)
            elif item is not None and isinstance(value, list):
                kept[key] = [
                    self._table(item, entry, (*here, index), layer) if isinstance(entry, dict) else entry
                    for index, entry in enumerate(value)
                ]
            else:
                kept[key] = value
        return kept

    def _refuses(self, model: type[BaseModel], path: KeyPath, value: object, layer: Layer) -> bool:
        key = str(path[-1])
        if len(path) == 1 and telemetry.owns_key(key):
            self._warn(telemetry.judge_key(key, value, layer.origin(path)))
            return False
        is_extra = issubclass(model, _extra_model(self.model))
        if (len(path) == 1 and key in UNUSED_KEYS) or (is_extra and is_unused_extra(key)):
            self.unused.append(layer.origin(path).about(path))
            return False
        return self.knows_plugins or not is_extra

    def _unknown_key(self, model: type[BaseModel], key: str, value: object) -> str:
        known = list(fields_of(model))
        if not issubclass(model, _extra_model(self.model)):
            return f"unknown key{suggestion(key, known)}"
        if isinstance(value, dict) or self._unloaded_owner(key) is not None:
            return self._unknown_table(key)
        if key in self.model.model_fields:
            return "unknown key here; it belongs at the top level, above all tables"
        if "." in key:
            return f"unknown key; write a table [{EXTRA}.<plugin>] instead of dots within a key"
        return f"unknown key{suggestion(key, known)}"

    def _unknown_top(self, key: str) -> str:
        if key in RETIRED_KEYS:
            return f"retired by LMCache; {RETIRED_KEYS[key]}"
        if key in self._extra_fields() or is_unused_extra(key):
            return f"unknown key here; it belongs under [{EXTRA}]"
        known = list(fields_of(self.model))
        return f"unknown key{suggestion(key, known)}"

    def _unknown_table(self, name: str) -> str:
        owner = self._unloaded_owner(name)
        if owner is not None:
            return f"would belong to plugin {owner!r}, which is not loaded: {self.unloaded[owner]}"
        known = [key for key, found in self._extra_fields().items() if table_model(found.annotation) is not None]
        hint = suggestion(name, known)
        return f"no loaded plugin owns table {name!r}{hint or '; install the plugin that does, or remove it'}"

    def _unloaded_owner(self, name: str) -> str | None:
        return next((plugin for plugin in self.unloaded if nearest(name, [plugin]) is not None), None)

    def _extra_fields(self) -> Mapping[str, Any]:
        return fields_of(_extra_model(self.model))

    def _warn(self, warning: str | None) -> None:
        if warning is not None:
            self.warnings.append(warning)


def unused_warning(names: Sequence[str]) -> list[str]:
    """Give the one warning that lists what LMCache knows and this project does not use."""
    if not names:
        return []
    return [f"known to LMCache, not used here, ignored: {', '.join(dict.fromkeys(names))}"]


def _extra_model(model: type[BaseModel]) -> type[BaseModel]:
    extra = table_model(model.model_fields[EXTRA].annotation)
    return extra if extra is not None else model
