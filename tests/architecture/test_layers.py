"""Imports run from a higher layer to a lower one, imports inside functions counted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Modules = list[Any]  # of conftest's Module

OPTIONAL = {"grpc", "grpc_health", "hiredis", "redis", "starlette", "torch", "transformers", "uvicorn", "yaml"}
"""Third-party libraries of the extras: those that may be imported inside a function."""

FACE = "lmcache_core"
"""The package's `__init__`: it imports every public name, on first use, and no module imports from it."""

OUTSIDE = {"testing"}
"""Packages outside the layers: for plugin authors; they may import all, and nothing imports them."""


def top(name: str) -> str:
    """First component below the core: ``lmcache_core.health.monitor`` is in ``health``."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "lmcache_core" else ""


def inner_edges(modules: Modules) -> Iterator[tuple[str, str, str]]:
    """Every import of one of these modules by another: importer, imported, place."""
    names = {module.name for module in modules}
    for module in modules:
        for found in module.imports:
            full = f"{found.target}.{found.name}" if found.name else found.target
            target = full if full in names else found.target
            if target in names and target != module.name:
                yield module.name, target, module.at(found.line)


def test_import_linter_keeps_every_contract(root: Path) -> None:
    command = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run([sys.executable, "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_of_the_core_has_a_layer(core: Modules, layers: list[list[str]]) -> None:
    known = {name for layer in layers for name in layer} | OUTSIDE | {""}
    assert {top(module.name) for module in core} - known == set()


def test_lower_layers_never_import_higher_or_neighbouring_ones(core: Modules, layers: list[list[str]]) -> None:
    level = {name: number for number, layer in enumerate(reversed(layers)) for name in layer}
    wrong = []
    for importer, imported, place in inner_edges(core):
        high, low = top(importer), top(imported)
        if importer == FACE or high == low or high in OUTSIDE:
            continue
        if low in OUTSIDE or imported == FACE or level[high] <= level[low]:
            wrong.append(f"{place}: {importer} imports {imported}")
    assert wrong == []


def test_no_cycles_among_modules(product: Modules) -> None:
    edges: dict[str, set[str]] = {module.name: set() for module in product}
    for importer, imported, _place in inner_edges(product):
        if FACE not in {importer, imported}:
            edges[importer].add(imported)
    # Modules that import nothing of ours go first; what never gets free is in or above a cycle.
    while free := {name for name, needs in edges.items() if not needs}:
        edges = {name: needs - free for name, needs in edges.items() if name not in free}
    assert edges == {}


def test_imports_inside_functions_are_of_optional_libraries(product: Modules) -> None:
    wrong = []
    for module in product:
        allowed = OPTIONAL | {"rich"} if top(module.name) == "cli" else OPTIONAL
        wrong += [
            f"{module.at(found.line)}: {found.function} imports {found.target}"
            for found in module.imports
            if found.function and found.target.split(".")[0] not in allowed and module.name != FACE
        ]
    assert wrong == []


def test_optional_libraries_are_not_imported_at_the_top_where_the_cli_passes(core: Modules) -> None:
    light = {"cli", "config", "registry", "contracts", "errors", "hookspecs", "storage", "health", "memory", "ops"}
    wrong = [
        f"{module.at(found.line)}: imports {found.target}"
        for module in core
        for found in module.imports
        if top(module.name) in light
        and not (found.function or found.for_types)
        and found.target.split(".")[0] in OPTIONAL
    ]
    assert wrong == []


def test_core_never_imports_a_plugin(core: Modules) -> None:
    wrong = [
        module.at(found.line)
        for module in core
        for found in module.imports
        if found.target.split(".")[0] == "lmcache_plugins"
    ]
    assert wrong == []


def test_the_page_on_the_architecture_shows_these_layers(root: Path, layers: list[list[str]]) -> None:
    page = (root / "docs/explanation/architecture.md").read_text()
    picture = page.split("## Layers")[1].split("```text\n")[1].split("```")[0]
    shown = [line.split("   ")[0].split(" | ") for line in picture.splitlines()]
    assert [sorted(part.strip() for part in line) for line in shown] == [sorted(layer) for layer in layers]
