"""Files are small and named for what is in them; functions fit a screen."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

Modules = list[Any]  # of conftest's Module

NAMELESS = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
FILE_LINES = 400
FUNCTION_LINES = 40


def test_no_file_or_folder_has_a_name_that_says_nothing(root: Path) -> None:
    wrong = [
        str(path.relative_to(root))
        for folder in ("core", "plugins", "tests", "bench", "examples")
        for path in (root / folder).rglob("*")
        if path.stem in NAMELESS
    ]
    assert wrong == []


def test_no_file_is_longer_than_400_lines(root: Path) -> None:
    wrong = [
        f"{path.relative_to(root)}: {lines}"
        for folder in ("core", "plugins", "tests", "bench", "examples")
        for path in sorted((root / folder).rglob("*.py"))
        if (lines := len(path.read_text().splitlines())) > FILE_LINES
    ]
    assert wrong == []


def test_no_function_is_longer_than_40_lines(product: Modules) -> None:
    """The docstring does not count: long contracts are welcome."""
    wrong = []
    for module in product:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first = node.body[0]
            documented = ast.get_docstring(node) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - docstring
            if lines > FUNCTION_LINES:
                wrong.append(f"{module.at(node.lineno)}: {node.name} has {lines}")
    assert wrong == []


def test_pythons_hash_is_not_called(product: Modules) -> None:
    """`hash()` of text differs in every process: a key made with it is never found again."""
    wrong = []
    for module in product:
        exempt = {
            id(inside)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
            for inside in ast.walk(node)
        }
        wrong += [
            module.at(node.lineno)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "hash" and id(node) not in exempt
        ]
    assert wrong == []
