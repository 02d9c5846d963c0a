"""The configuration as JSON Schema, for editors and for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmcache_core.config.described import describe_fields
from lmcache_core.config.model import CoreConfig, TableOwner, build_model
from lmcache_core.config.usage import USAGE_KEYS


def json_schema(owners: Sequence[TableOwner]) -> dict[str, Any]:
    """Describe every key, those of the plugins' tables included.

    Args:
        owners: Tables of loaded plugins.

    Raises:
        PluginError: A plugin's table has the name of one of the core's own keys.
    """
    describe_fields(CoreConfig)
    for owner in owners:
        describe_fields(owner.settings)
    schema = build_model(owners).model_json_schema(by_alias=True)
    schema["title"] = "lmcache.toml"
    schema["properties"].update({name: dict(key) for name, key in USAGE_KEYS.items()})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
