"""Values in the text of an environment variable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lmcache_core.config.fields import is_type_error, strict_errors

_YES: Final = frozenset({"true", "yes", "on", "y", "t", "1"})
_NO: Final = frozenset({"false", "no", "off", "n", "f", "0"})


def truth(text: str) -> bool | None:
    """Read yes or no in any usual spelling; None for anything else."""
    word = text.strip().lower()
    if word in _YES:
        return True
    return False if word in _NO else None


def read_text(field: FieldInfo, text: str) -> tuple[Any, list[ErrorDetails]]:
    """Read a variable's text as the value that its field wants.

    Text, whole number, number, truth word, JSON and comma list are tried in this order, each by the
    field's own strict rules, so that a field of type text takes ``123`` as it is.

    Returns:
        The value and no error, or the text and the errors of the reading that came nearest.
    """
    nearest: list[ErrorDetails] = []
    for value in _readings(text):
        errors = strict_errors(field, value)
        if not errors:
            return value, []
        if not nearest or (is_type_error(nearest[0]) and not is_type_error(errors[0])):
            nearest = errors
    return text, nearest


def _readings(text: str) -> Iterator[Any]:
    yield text
    yield from _number(text)
    word = truth(text)
    if word is not None:
        yield word
    with suppress(ValueError, RecursionError):
        yield json.loads(text)
    if not text.lstrip().startswith(("[", "{")):
        yield from _comma_lists(text)


def _comma_lists(text: str) -> Iterator[list[Any]]:
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    yield parts
    numbers = [next(_number(part), None) for part in parts]
    if None not in numbers:
        yield numbers


def _number(text: str) -> Iterator[int | float]:
    with suppress(ValueError):
        yield int(text)
    with suppress(ValueError):
        yield float(text)
