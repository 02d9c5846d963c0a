"""A test that bounds what something takes is run by itself: beside others it would judge how busy the machine is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CLOCKS = {"monotonic", "perf_counter"}
ALONE_ANYHOW = {"engines", "upstream"}  # run by themselves, one test after another
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_tests_that_bound_time_are_marked(root: Path) -> None:
    wrong = [
        f"{file.relative_to(root)}: {name} needs @pytest.mark.timing, or no bound on the machine's clock"
        for file in sorted((root / "tests").rglob("test_*.py"))
        if file.relative_to(root / "tests").parts[0] not in ALONE_ANYHOW
        for name in unmarked(ast.parse(file.read_text()))
    ]
    assert wrong == []


def test_bounds_are_found_in_tests_and_through_what_they_use() -> None:
    source = """
import time
def since(): return time.monotonic()
class Stopwatch:
    def read(self): return time.perf_counter()
def test_by_itself(): assert time.monotonic() - 3 < 5
def test_through_a_function(): assert since() <= 5
class TestGrouped:
    def test_through_a_class(self): assert Stopwatch().read() < 5
def test_only_waits(): time.monotonic()
def test_at_least(): assert since() >= 5
def test_counts(): took = since(); assert len("abc") < 5
def test_seconds(): took_s = since(); assert took_s < 5
@pytest.mark.timing
def test_marked(): assert since() < 5
"""
    found = ["test_by_itself", "test_through_a_function", "test_through_a_class", "test_seconds"]

    assert sorted(unmarked(ast.parse(source))) == sorted(found)
    assert list(unmarked(ast.parse(f"pytestmark = pytest.mark.timing\n{source}"))) == []


def unmarked(tree: ast.Module) -> Iterator[str]:
    """Give the names of the tests that compare the machine's clock with an upper bound, and are not marked."""
    if any(isinstance(node, ast.Assign) and _is_marked(node.value) for node in tree.body):
        return
    timers = {
        node.name
        for node in tree.body
        if isinstance(node, Definition) and not node.name.lower().startswith("test") and _reads_a_clock(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        reads = _reads_a_clock(node) or bool(_names(node) & timers)
        if reads and _bounds_time(node, timers) and not any(map(_is_marked, node.decorator_list)):
            yield node.name


def _reads_a_clock(node: ast.AST) -> bool:
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in CLOCKS
        for call in ast.walk(node)
    )


def _bounds_time(node: ast.AST, timers: set[str]) -> bool:
    """Tell whether it asserts that seconds, a clock or what reads one is less than something."""
    return any(
        isinstance(compared, ast.Compare)
        and any(isinstance(order, ast.Lt | ast.LtE) for order in compared.ops)
        and any(name.endswith("_s") or name in CLOCKS | timers for name in _names(compared))
        for asserted in ast.walk(node)
        if isinstance(asserted, ast.Assert)
        for compared in ast.walk(asserted.test)
    )


def _names(node: ast.AST) -> set[str]:
    return {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}


def _is_marked(node: ast.AST) -> bool:
    return any(isinstance(inside, ast.Attribute) and inside.attr == "timing" for inside in ast.walk(node))
