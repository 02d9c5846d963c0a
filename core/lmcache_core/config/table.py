"""Parent of the core's own tables."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from lmcache_core.config.secrets import masked


class Table(BaseModel):
    """Parent of the core's own tables."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Name every field, secrets masked, those within plugins' tables included."""
        for name, found in type(self).model_fields.items():
            yield found.alias or name, masked(name, found, getattr(self, name))

    def __str__(self) -> str:
        return repr(self)
