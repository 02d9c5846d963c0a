"""A store's address as a configuration value; its credentials never show."""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from lmcache_core.contracts.url import StoreURL


class StoreAddress:
    """Address such as ``redis://user:secret@cache-1:6379``; `str` and `repr` leave credentials and query out.

    Args:
        text: As written by the user.

    Raises:
        ValueError: A sentence that shows no part of the credentials.
    """

    __slots__ = ("parsed",)

    parsed: StoreURL
    """All parts, the credentials included."""

    def __init__(self, text: str) -> None:
        self.parsed = StoreURL.parse(text)

    def __str__(self) -> str:
        return str(self.parsed)

    def __repr__(self) -> str:
        return f"StoreAddress({str(self.parsed)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreAddress) and self.parsed == other.parsed

    def __hash__(self) -> int:
        return hash(self.parsed)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate from text only."""
        del source, handler
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Say that it is a URI that is not to be shown."""
        del schema, handler
        return {"type": "string", "format": "uri", "writeOnly": True}
