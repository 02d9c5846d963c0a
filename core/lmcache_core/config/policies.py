"""The type of a key that names one fallback policy, or a ladder of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import WrapValidator

_NOT_IN_A_NAME = frozenset(",[]\"'")  # so that a variable's a,b and ["a", "b"] are read as lists


def policy_names(value: object) -> tuple[str, ...]:
    """Give the names in a value of this type; nothing for any other value."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return tuple(value)
    return ()


def _judge(value: object, _: object) -> Any:
    if isinstance(value, str) and value and _NOT_IN_A_NAME.isdisjoint(value):
        return value
    names = () if isinstance(value, str) else policy_names(value)
    if not names:
        raise ValueError("must be the name of a policy, or a list of names, the one to use first in front")
    if len(set(names)) < len(names):
        raise ValueError("must name each policy once")
    return names


Policies: TypeAlias = Annotated[str | tuple[str, ...], WrapValidator(_judge)]
"""A name, or several: the next one takes over when the failure lasts, or when the one before does not help."""
