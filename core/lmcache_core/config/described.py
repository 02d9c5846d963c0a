"""Field docstrings as descriptions, read only where somebody wants to see them.

pydantic can read them when a class is made, but that parses source files at every start of every
process: some 20 ms a model, more than all else that ``lmcachectl plugins list`` does.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel


def describe_fields(model: type[BaseModel]) -> None:
    """Give a model's fields, and those of the models within, their docstrings as descriptions; in place.

    A class whose source cannot be read stays as it is. Call it on the main thread, before the model
    is used to make others.
    """
    for nested in {found for field in model.model_fields.values() for found in _models_in(field.annotation)}:
        describe_fields(nested)
    texts: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if one is not BaseModel and issubclass(one, BaseModel):
            texts.update(_field_docstrings(one))
    for name, field in model.model_fields.items():
        if not field.description and name in texts:
            field.description = texts[name]
    model.model_rebuild(force=True)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Find each ``name: type = ...`` that a bare string follows."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = inspect.cleandoc(value.value)
    return found
