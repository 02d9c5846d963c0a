"""A built-in plugin sees what a third party's wheel sees: the public names, and nothing of its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli

import lmcache_core

Modules = list[Any]  # of conftest's Module


def test_plugins_import_only_public_names(plugins: Modules) -> None:
    public = set(lmcache_core.__all__)
    wrong = [
        f"{module.at(found.line)}: from {found.target} import {found.name}"
        for module in plugins
        for found in module.imports
        if found.target.split(".")[0] == "lmcache_core"
        and not (found.target == "lmcache_core" and (not found.name or found.name in public))
    ]
    assert wrong == []


def test_plugins_never_import_each_other(plugins: Modules) -> None:
    wrong = []
    for module in plugins:
        own = module.name.split(".")[:2]
        wrong += [
            f"{module.at(found.line)}: imports {found.target}"
            for found in module.imports
            if found.target.split(".")[0] == "lmcache_plugins" and found.target.split(".")[:2] != own
        ]
    assert wrong == []


def test_hooks_modules_import_no_optional_library(plugins: Modules) -> None:
    heavy = {"redis", "hiredis", "torch", "transformers", "starlette", "uvicorn", "yaml", "rich"}
    wrong = [
        f"{module.at(found.line)}: imports {found.target}"
        for module in plugins
        for found in module.imports
        if module.name.endswith(".hooks") and found.target.split(".")[0] in heavy
    ]
    assert wrong == []


def test_hook_implementations_are_only_in_hooks_modules(plugins: Modules) -> None:
    wrong = [
        module.at(found.line)
        for module in plugins
        for found in module.imports
        if found.name == "hookimpl" and not module.name.endswith(".hooks")
    ]
    assert wrong == []


def test_every_built_in_plugin_has_its_entry_point(plugins: Modules, root: Path) -> None:
    project = tomli.loads((root / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["lmcache_core.plugins"]
    assert declared == {
        name.split(".")[1]: name for name in (module.name for module in plugins) if name.endswith(".hooks")
    }
