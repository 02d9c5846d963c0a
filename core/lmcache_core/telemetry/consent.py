"""The one gate of usage telemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lmcache_core.config.usage import UsageOptions, forbidden_by


def is_usage_tracking_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether the environment allows usage telemetry.

    ``LMCACHE_TRACK_USAGE`` forbids it with anything but a usual spelling of yes; ``DO_NOT_TRACK``
    with anything but nothing, ``0`` and ``false``.

    Args:
        environ: Instead of the process's own.
    """
    return not forbidden_by(os.environ if environ is None else environ)


def why_off(options: UsageOptions) -> str:
    """Say why nothing is sent; ``""`` when something is."""
    switch = forbidden_by(options.switches)
    if switch:
        return f"{switch} is set to {options.switches[switch]!r}"
    if not options.track_usage:
        return "track_usage is not true"
    if options.endpoint is None:
        return "no usage_endpoint is configured, and there is no other place to send to"
    return ""
