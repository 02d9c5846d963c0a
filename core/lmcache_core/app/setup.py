"""What every process does first: load plugins and configuration, and log what they say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from lmcache_core.loading import Loaded, load

log = logging.getLogger(__name__)


def load_logged(
    config_file: str | Path | None, overrides: Mapping[str, object] | None, environ: Mapping[str, str] | None
) -> Loaded:
    """Load plugins and configuration, set the log level, and log the warnings.

    Raises:
        ConfigError: Names all offenders at once.
        PluginError: A required plugin did not load, or two plugins clash.
    """
    path = Path(config_file) if config_file is not None else None
    loaded = load(config_file=path, overrides=overrides, environ=environ)
    logging.getLogger("lmcache_core").setLevel(loaded.configuration.values.log_level)
    for warning in loaded.configuration.warnings:
        log.warning("%s", warning)
    return loaded
