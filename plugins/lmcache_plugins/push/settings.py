"""Table ``[extra_config.push]``."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, Field, field_validator

from lmcache_core import PluginSettings


class PushCheckSettings(BaseModel):
    """One ``[[extra_config.push.checks]]`` entry: a check that takes reports."""

    model_config = PluginSettings.model_config

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$", max_length=63)
    """Name of the check, as reports address it: letters, digits, `_`, `.` and `-`; unique."""

    ttl_s: float = Field(gt=0, le=86_400)
    """Seconds that a report holds, up to a day. Report three times as often. Without a fresh report the check fails."""

    policy: str | None = None
    """What to do while it fails; left out, `fallback_policy` of `[extra_config]`."""

    backend: str | None = None
    """The store it speaks for, such as `RemoteBackend`; none for the cache as a whole."""


class PushSettings(PluginSettings):
    """Table ``[extra_config.push]``; environment ``LMCACHE_EXTRA_CONFIG__PUSH__CHECKS`` as JSON."""

    table = "push"

    checks: tuple[PushCheckSettings, ...] = ()
    """Checks that take reports, each with `name`, `ttl_s`, `policy` and `backend`."""

    @field_validator("checks")
    @classmethod
    def _have_one_name_each(cls, checks: tuple[PushCheckSettings, ...]) -> tuple[PushCheckSettings, ...]:
        twice = [name for name, count in Counter(check.name for check in checks).items() if count > 1]
        if twice:
            raise ValueError(f"two checks are named {twice[0]!r}; rename one")
        return checks
