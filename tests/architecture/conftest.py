"""The source tree, parsed once, and what each module imports: lazily, for types only, or plainly."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Import:
    """One imported module or name.

    `function` is where it happens, "" at the top of the file. `for_types`: under ``if TYPE_CHECKING``.
    """

    target: str
    name: str
    line: int
    function: str
    for_types: bool


@dataclass(frozen=True)
class Module:
    """One file of the product."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    is_package: bool

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self))

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))

    def at(self, line: int) -> str:
        return f"{self.where}:{line}"


def _imports(module: Module) -> Iterator[Import]:
    def walk(node: ast.AST, function: str, types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, "", child.lineno, function, types)
            elif isinstance(child, ast.ImportFrom):
                target = _absolute(module, child)
                for alias in child.names:
                    yield Import(target, alias.name, child.lineno, function, types)
            elif isinstance(child, ast.Call) and _is_import_call(child):
                yield Import(child.args[0].value, "", child.lineno, function, types)  # type: ignore[attr-defined]
                yield from walk(child, function, types)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from walk(child, getattr(child, "name", "lambda"), types)
            else:
                yield from walk(child, function, types or _is_type_checking(child))

    yield from walk(module.tree, "", False)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING"


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _is_import_call(node: ast.Call) -> bool:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    literal = node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    return called in {"import_module", "__import__"} and bool(literal)


def _read(root: Path) -> list[Module]:
    modules = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root.parent).with_suffix("")
        is_package = relative.name == "__init__"
        parts = relative.parent.parts if is_package else relative.parts
        text = path.read_text()
        modules.append(Module(".".join(parts), path, text, ast.parse(text), is_package))
    return modules


@pytest.fixture(scope="session")
def core() -> list[Module]:
    """Every module of the core."""
    return _read(ROOT / "core" / "lmcache_core")


@pytest.fixture(scope="session")
def plugins() -> list[Module]:
    """Every module of the built-in plugins."""
    return _read(ROOT / "plugins" / "lmcache_plugins")


@pytest.fixture(scope="session")
def product(core: list[Module], plugins: list[Module]) -> list[Module]:
    """Everything that is installed."""
    return [*core, *plugins]


@pytest.fixture(scope="session")
def layers() -> list[list[str]]:
    """The layers of pyproject.toml, highest first; the modules of one layer are independent."""
    table = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [contract for contract in table["contracts"] if contract["type"] == "layers"]
    return [[part.strip(" ()") for part in layer.split("|")] for layer in contract["layers"]]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
