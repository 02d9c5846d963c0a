"""No state at module level: two caches in one process share nothing but constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

Modules = list[Any]  # of conftest's Module

CONTAINERS = {
    "Counter", "OrderedDict", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary",
    "bytearray", "defaultdict", "deque", "dict", "list", "set",
}  # fmt: skip
LIVE = {
    "Barrier", "BoundedSemaphore", "CollectorRegistry", "Condition", "Console", "ContextVar", "Event", "Lock",
    "LifoQueue", "PluginManager", "PriorityQueue", "Queue", "RLock", "Semaphore", "SimpleQueue", "Thread",
    "ThreadPoolExecutor", "WorkerPool", "count", "local",
}  # fmt: skip
MUTATORS = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


def assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    """Names bound at module level, with what they are bound to; `if` and `try` blocks included."""
    for node in ast.walk(ast.Module([part for part in tree.body if not is_scope(part)], [])):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value, node.lineno
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            yield node.target.id, node.value, node.lineno


def is_scope(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def called(value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return ""
    return value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")


def is_container(value: ast.expr) -> bool:
    literal = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)
    return literal or called(value) in CONTAINERS


def is_constant_name(name: str) -> bool:
    return name.lstrip("_").isupper() or (name.startswith("__") and name.endswith("__"))


def test_containers_at_module_level_are_constants(product: Modules) -> None:
    wrong = [
        f"{module.at(line)}: {name}"
        for module in product
        for name, value, line in assignments(module.tree)
        if is_container(value) and not is_constant_name(name)
    ]
    assert wrong == []


def test_no_live_objects_at_module_level(product: Modules) -> None:
    wrong = [
        f"{module.at(line)}: {name} = {called(value)}(...)"
        for module in product
        for name, value, line in assignments(module.tree)
        if called(value) in LIVE
    ]
    assert wrong == []


def test_constants_are_never_changed(product: Modules) -> None:
    wrong = []
    for module in product:
        constants = {name for name, value, _line in assignments(module.tree) if is_container(value)}
        for node in ast.walk(module.tree):
            changed = ""
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
                changed = getattr(node.func.value, "id", "")
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                changed = getattr(node.value, "id", "")
            if changed in constants:
                wrong.append(f"{module.at(node.lineno)}: changes {changed}")
    assert wrong == []


def test_no_global_statement(product: Modules) -> None:
    wrong = [
        module.at(node.lineno) for module in product for node in ast.walk(module.tree) if isinstance(node, ast.Global)
    ]
    assert wrong == []
