"""Model of a plugin's table in the configuration."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class PluginSettings(BaseModel):
    """One table: ``[extra_config.<table>]``, environment ``LMCACHE_EXTRA_CONFIG__<TABLE>__<KEY>``.

    Subclass it, set `table`, and give every field a default or make it required. Unknown keys are
    errors. The docstring under a field is its documentation in ``lmcachectl config schema``. Type
    secrets as `pydantic.SecretStr`. A required field is asked for only when the table is present.

    Example:
        >>> class DatabaseSettings(PluginSettings):
        ...     table = "database"
        ...     dsn: SecretStr = SecretStr("sqlite:///:memory:")
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    table: ClassVar[str]
    """Name under ``[extra_config]``: lower-case letters, digits and underscores."""
