"""Sentences about wrong values, made from the kind of error; pydantic's own texts hold the input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import ErrorDetails

from lmcache_core.config.origin import Kind
from lmcache_core.config.secrets import shown_input

_NUMBER: Final = "must be a number"
_WHOLE: Final = "must be a whole number"
_TRUTH: Final = "must be true or false"
_TEXT: Final = "must be text"
_LIST: Final = "must be a list"
_TABLE: Final = "must be a table"

_FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "int_type": _WHOLE,
        "int_parsing": _WHOLE,
        "int_from_float": _WHOLE,
        "int_parsing_size": _WHOLE + " of fewer digits",
        "float_type": _NUMBER,
        "float_parsing": _NUMBER,
        "finite_number": "must be a finite number",
        "bool_type": _TRUTH,
        "bool_parsing": _TRUTH,
        "string_type": _TEXT,
        "string_unicode": _TEXT + " in UTF-8",
        "list_type": _LIST,
        "tuple_type": _LIST,
        "set_type": _LIST,
        "frozen_set_type": _LIST,
        "dict_type": _TABLE,
        "model_type": _TABLE,
        "model_attributes_type": _TABLE,
        "missing": "is required and missing",
        "extra_forbidden": "is unknown",
    }
)
_WITH_CONTEXT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "greater_than": "must be greater than {gt:g}",
        "greater_than_equal": "must be {ge:g} or more",
        "less_than": "must be less than {lt:g}",
        "less_than_equal": "must be {le:g} or less",
        "multiple_of": "must be a multiple of {multiple_of}",
        "string_too_short": "must have {min_length} or more characters",
        "string_too_long": "must have {max_length} or fewer characters",
        "string_pattern_mismatch": "must match {pattern}",
        "literal_error": "must be one of {expected}",
        "enum": "must be one of {expected}",
        "too_short": "must have {min_length} or more items",
        "too_long": "must have {max_length} or fewer items",
    }
)
_NUMERIC: Final = frozenset({_NUMBER, _WHOLE})
_UNIT: Final = re.compile(r"\s*[+-]?[\d._]+\s*([kmgtp]i?b?|b|ms|s|sec|secs|m|min|h|%)\s*", re.IGNORECASE)
_BARE: Final = re.compile(r"\s*[+-]?[\d_]*\.?[\d_]+\s*")


def sentence(error: ErrorDetails, *, shows_input: bool, kind: Kind) -> str:
    """Say what is wrong with a value.

    Args:
        error: From pydantic; only its type and constraints are used, and its input where allowed.
        shows_input: Whether the value is harmless.
        kind: Where it was written: in a file quotes matter, in a variable they do not exist.
    """
    text = describe(error)
    if error["type"] in {"missing", "extra_forbidden"}:
        return text
    value = error["input"]
    if text == _LIST and kind == "env":
        text += ', as JSON such as ["a", "b"] or as a comma list such as a,b'
    if is_foreign(error) or not shows_input:
        return text
    return f"{text}, got {shown_input(value)}{_advice(text, value, kind)}"


def describe(error: ErrorDetails) -> str:
    """Say what kind of value is wanted, without the one that was given."""
    kind = error["type"]
    if kind in _FIXED:
        return _FIXED[kind]
    context: dict[str, Any] = error.get("ctx", {})
    if kind in _WITH_CONTEXT:
        return _WITH_CONTEXT[kind].format_map(context)
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", "is not accepted"))
    return error["msg"][:1].lower() + error["msg"][1:]


def is_foreign(error: ErrorDetails) -> bool:
    """Tell whether the sentence is a validator's own text, which may hold anything."""
    return error["type"] not in _FIXED and error["type"] not in _WITH_CONTEXT


def _advice(text: str, value: object, kind: Kind) -> str:
    if not isinstance(value, str):
        return ""
    if text in _NUMERIC and _UNIT.fullmatch(value):
        return "; write it without a unit"
    bare = (text in _NUMERIC and _BARE.fullmatch(value)) or (text == _TRUTH and value.lower() in {"true", "false"})
    return "; write it without quotes" if bare and kind != "env" else ""
