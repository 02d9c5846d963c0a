"""The validation of merged values: leaf by leaf, table by table, then keys against each other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lmcache_core.config.consistency import Finding, findings
from lmcache_core.config.fields import field_at, leaves, strict_errors
from lmcache_core.config.known import Known
from lmcache_core.config.model import CoreConfig
from lmcache_core.config.origin import KeyPath, Merged, Origin, Tree, has, key_text, overlay, prune
from lmcache_core.config.policies import policy_names
from lmcache_core.config.problem import Problem
from lmcache_core.config.secrets import is_secret, redact, shows_input, texts_in
from lmcache_core.config.sentences import is_foreign, sentence
from lmcache_core.contracts.url import StoreURL

_EXTRA = "extra_config"
_REMOTES = "remotes"
_MOST_ROUNDS = 20


class Judgement:
    """One run over one merged tree. Wrong values are noted and give way to their defaults.

    Args:
        model: With every loaded plugin's table.
        merged: Claimed keys only.
        plugin_of: Table's name to its plugin.
        known: What plugins bring; None before they are loaded.
    """

    def __init__(
        self, model: type[CoreConfig], merged: Merged, plugin_of: Mapping[str, str], known: Known | None
    ) -> None:
        self.problems: list[Problem] = []
        self._model = model
        self._merged = merged
        self._plugin_of = plugin_of
        self._known = known
        self._tree: Tree = copy.deepcopy(merged.tree)
        self._bad: set[KeyPath] = set()
        self._dropped_remotes: set[int] = set()
        self._secrets = [
            text
            for path, found, value in leaves(model, merged.tree)
            if is_secret(_name(path), found)
            for text in texts_in(value)
        ]

    def run(self) -> CoreConfig:
        """Judge everything."""
        for path, found, value in list(leaves(self._model, self._tree)):
            text = self._name_problem(path, value) or self._leaf_problem(path, found, value)
            if text is not None:
                self.note(path, text)
                prune(self._tree, path)
        values = self._judge_tables()
        for finding in findings(values, self._known):
            self._note_finding(finding)
        return values

    def note(self, path: KeyPath, text: str, origin: Origin | None = None) -> None:
        """Keep a problem and remember that the key is wrong."""
        plugin = self._plugin(path)
        suffix = f" (table of plugin {plugin!r})" if plugin is not None else ""
        self.problems.append(Problem(origin or self._merged.origin(path), path, text + suffix))
        self._bad.add(path)

    def _leaf_problem(self, path: KeyPath, found: FieldInfo, value: object) -> str | None:
        errors = strict_errors(found, value)
        if not errors:
            return None
        where = errors[0]["loc"]
        if where:
            return f"item {key_text(where)} {self._sentence(path, errors[0])}"
        return self._sentence(path, {**errors[0], "input": value})

    def _judge_tables(self) -> CoreConfig:
        for _ in range(_MOST_ROUNDS):
            tree = self._effective()
            try:
                return self._model.model_validate(tree)
            except ValidationError as error:
                errors = error.errors(include_url=False)
            # All are located before any is dropped: dropping moves what the others point at.
            located = [(each, *self._locate(each, tree)) for each in errors]
            for each, path, table in located:
                if has(self._tree, table) and not self._is_bad(path):
                    self.note(path, self._sentence(path, each))
            for _, _, table in located:
                self._drop(table)
        return self._model()

    def _locate(self, error: ErrorDetails, tree: Tree) -> tuple[KeyPath, KeyPath]:
        """Give the key an error is about, and what has to go for its sake."""
        path: KeyPath = error["loc"]
        while path and not has(tree, path):
            path = path[:-1]  # pydantic adds to a location, such as the member of a union
        if error["type"] == "missing" and len(path) < len(error["loc"]):
            return self._original((*path, error["loc"][len(path)])), self._original(path)
        return self._original(path), self._original(path)

    def _effective(self) -> Tree:
        """The tree with each remote's own keys over the global ones, wrong remotes left out."""
        tree = dict(self._tree)
        if isinstance(tree.get(_REMOTES), list):
            tree[_REMOTES] = [self._effective_remote(tree[_REMOTES][index]) for index in self._kept_remotes()]
        return tree

    def _effective_remote(self, remote: Any) -> Any:
        if not isinstance(remote, dict):
            return remote
        return {**remote, _EXTRA: overlay(self._tree.get(_EXTRA, {}), remote.get(_EXTRA, {}))}

    def _kept_remotes(self) -> list[int]:
        remotes = self._tree.get(_REMOTES)
        return [index for index in range(len(remotes)) if index not in self._dropped_remotes] if remotes else []

    def _original(self, path: KeyPath) -> KeyPath:
        """Undo the leaving out of wrong remotes in a path."""
        if len(path) > 1 and path[0] == _REMOTES and isinstance(path[1], int):
            return (_REMOTES, self._kept_remotes()[path[1]], *path[2:])
        return path

    def _drop(self, path: KeyPath) -> None:
        """Let a default stand in: a key goes alone, a key that a remote cannot be without takes the remote along."""
        remote = path[1] if len(path) > 1 and path[0] == _REMOTES else None
        if isinstance(remote, int) and path[2:3] != (_EXTRA,):
            self._dropped_remotes.add(remote)
        else:
            prune(self._tree, path)

    def _is_bad(self, path: KeyPath) -> bool:
        """Tell whether a key, a table around it, or the global key it inherits from is known to be wrong."""
        prefixes = {path[:length] for length in range(1, len(path) + 1)}
        if path[0] == _REMOTES and path[2:3] == (_EXTRA,) and not self._merged.given(path):
            prefixes |= {path[2:length] for length in range(4, len(path) + 1)}
        return not prefixes.isdisjoint(self._bad)

    def _note_finding(self, finding: Finding) -> None:
        paths = [self._original(path) for path in finding.paths]
        if any(self._is_bad(path) for path in paths):
            return
        given = [path for path in paths if self._merged.given(path)]
        if given or paths[0][0] != _REMOTES:
            self.note((given or paths)[0], finding.sentence)

    def _name_problem(self, path: KeyPath, value: object) -> str | None:
        """Say that no plugin brings a scheme or policy; asked first, as an address of it may look odd."""
        if self._known is None or self._plugin(path) is not None:
            return None
        if path[-1] == "fallback_policy":
            found = (self._known.policy_problem(name) for name in policy_names(value))
            return next((problem for problem in found if problem is not None), None)
        if path[-1] not in {"url", "remote_url"} or not isinstance(value, str):
            return None
        scheme, separator, _ = value.strip().lower().partition("://")
        return self._known.scheme_problem(scheme) if separator and StoreURL.is_scheme(scheme) else None

    def _sentence(self, path: KeyPath, error: ErrorDetails) -> str:
        found = field_at(self._model, path)
        is_core = self._plugin(path) is None
        shows = shows_input(_name(path), found, error["input"], is_core=is_core)
        text = sentence(error, shows_input=shows, kind=self._merged.origin(path).kind)
        return redact(text, self._secrets) if is_foreign(error) and not is_core else text

    def _plugin(self, path: KeyPath) -> str | None:
        return next((self._plugin_of[str(key)] for key in _within_extra(path) if key in self._plugin_of), None)


def _within_extra(path: KeyPath) -> Iterator[str | int]:
    """Give the key right under ``extra_config``."""
    if _EXTRA in path:
        yield from path[path.index(_EXTRA) + 1 :][:1]


def _name(path: KeyPath) -> str:
    return next((key for key in reversed(path) if isinstance(key, str)), "")
