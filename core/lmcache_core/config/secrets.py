"""What may be shown of a value. Secrets never; text only where its field is known to be harmless."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from lmcache_core.config.address import StoreAddress

MASK = "**********"
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|passw|secret|token|credential|private|api_?key|access_?key|auth|dsn|cookie|signature|(^|_)key$|(^|_)salt(_hash)?$",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")
_LONGEST_SHOWN = 60
_SHORTEST_SECRET = 3


def mask_address(text: str) -> str:
    """Leave user, password, query and fragment out of any address in a text."""
    return _QUERY.sub(r"\1", _USER_INFO.sub("", text))


def is_secret(name: str, field: FieldInfo | None) -> bool:
    """Tell whether a key's value is never to be shown: by its type, or by its name where the type is text."""
    if field is None:
        return True
    types = set(_plain_types(field.annotation))
    if types & {SecretStr, SecretBytes, StoreAddress}:
        return True
    return bool(types - {int, float, bool, type(None)}) and _SECRET_NAME.search(name) is not None


def shows_input(name: str, field: FieldInfo | None, value: object, *, is_core: bool) -> bool:
    """Tell whether a wrong value may stand in the sentence about it.

    Args:
        name: Last key of the path.
        field: The key's field.
        value: As it was given.
        is_core: Whether the core owns the key; it knows that its text fields hold no secret.
    """
    if field is None or isinstance(value, (dict, list)) or _SECRET_NAME.search(name):
        return False
    types = set(_plain_types(field.annotation))
    if types & {SecretStr, SecretBytes, StoreAddress, BaseModel}:
        return False
    if isinstance(value, str) and ("://" in value or "@" in value):
        return False
    return is_core or not isinstance(value, str) or not types - {int, float, bool, type(None), Literal}


def shown_input(value: object) -> str:
    """Write a value into a sentence, short and on one line."""
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
        return repr(text)
    return "null" if value is None else str(value).lower()


def masked(name: str, field: FieldInfo | None, value: object) -> Any:
    """Give a validated value as JSON with every secret masked."""
    if isinstance(value, StoreAddress):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, (SecretStr, SecretBytes)) or is_secret(name, field):
        return MASK if value else ""
    return _masked_container(name, field, value)


def _masked_container(name: str, field: FieldInfo | None, value: object) -> Any:
    if isinstance(value, BaseModel):
        return {key: masked(key, type(value).model_fields.get(key), part) for key, part in value}
    if isinstance(value, Mapping):
        return {str(key): masked(str(key), field, part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [masked(name, field, part) for part in value]
    if isinstance(value, enum.Enum):
        return masked(name, field, value.value)
    return mask_address(str(value))


def shown(value: Any) -> str:
    """Write a masked value on one line of a table."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if value is not None else "none"


def redact(text: str, secrets: Iterable[str]) -> str:
    """Mask every secret in a text that other people's code wrote."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK).replace(repr(secret)[1:-1], MASK)
    return mask_address(text)


def texts_in(value: object) -> Iterable[str]:
    """Give every text within a value, keys left out."""
    if isinstance(value, str):
        yield value
        yield from re.findall(r"://[^:/@\s]*:([^@\s]*)@", value)
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_in(part)


def _plain_types(annotation: Any) -> Iterable[Any]:
    if get_origin(annotation) is Literal:
        yield Literal
    elif isinstance(annotation, type) and issubclass(annotation, Path):
        yield Path
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield BaseModel
    elif get_args(annotation):
        for part in get_args(annotation):
            yield from _plain_types(part)
    else:
        yield annotation
