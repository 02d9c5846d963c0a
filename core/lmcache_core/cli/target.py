"""Commands that are imported when they are run, so that the others start quickly."""

from __future__ import annotations

import importlib


def import_target(target: str) -> object:
    """Import what ``module:attribute`` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
