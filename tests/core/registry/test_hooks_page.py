"""The reference of the hooks says what the hook specifications say."""

import inspect
from pathlib import Path

import pytest

from lmcache_core import hookspecs

PAGE = (Path(__file__).parents[3] / "docs/reference/hooks.md").read_text()
HOOKS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("lmcache_")}


def test_there_are_hooks() -> None:
    assert len(HOOKS) == 10


def test_page_names_the_hooks_and_no_others() -> None:
    assert [line[3:] for line in PAGE.splitlines() if line.startswith("## ")] == list(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_page_has_the_docstring(name: str) -> None:
    prose = inspect.getdoc(HOOKS[name]).partition("Example:")[0].strip().replace("``", "`")

    assert prose in PAGE


@pytest.mark.parametrize("name", HOOKS)
def test_page_has_the_arguments(name: str) -> None:
    arguments = ", ".join(f"{one.name}: {one.annotation}" for one in inspect.signature(HOOKS[name]).parameters.values())

    assert f"\n{name}({arguments}) -> " in PAGE


def test_page_has_the_api_version() -> None:
    assert f"This is hook API {hookspecs.API_VERSION}." in PAGE
