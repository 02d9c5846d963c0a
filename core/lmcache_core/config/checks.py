"""Table ``[[extra_config.checks]]``: what the configuration says of health checks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import Field

from lmcache_core.config.policies import Policies
from lmcache_core.config.table import Table


class CheckTable(Table):
    """One ``[[extra_config.checks]]`` entry: how some checks are run and answered; the rest they decide themselves."""

    match: str = Field(min_length=1)
    """Name of the checks it is about, `*` for any letters, such as `RemoteBackendHealthCheck*`; later entries win."""

    interval: float | None = Field(default=None, gt=0)
    """Seconds between two runs."""

    fast_interval: float | None = Field(default=None, gt=0)
    """Seconds between two runs while it fails; not more than `interval`."""

    timeout: float | None = Field(default=None, gt=0)
    """Seconds that one run may take; then it has failed."""

    rise: int | None = Field(default=None, ge=1)
    """Passing runs in a row that make a failed check healthy."""

    fall: int | None = Field(default=None, ge=1)
    """Failing runs in a row that make a healthy check failed."""

    initial_delay: float | None = Field(default=None, ge=0)
    """Seconds from the start to the first run; above 0, nothing waits for that run."""

    jitter: float | None = Field(default=None, ge=0, lt=1)
    """Share of the interval by which a run comes early at random."""

    enforce: bool | None = None
    """`false` only observes: a failure is shown and counted, and stops nothing."""

    group: str | None = None
    """Name that `depends_on` may use for these checks together."""

    depends_on: tuple[str, ...] | None = None
    """Checks or groups, `*` for any letters: while one of them is down these do not run and engage nothing."""

    fallback_policy: Policies | None = None
    """What to do while they fail, in place of the global key."""

    policy_ladder_secs: float | None = Field(default=None, gt=0)
    """Seconds that one policy of a list may last, in place of the global key."""

    def terms(self) -> Mapping[str, object]:
        """Give what it says, by key."""
        return {
            key: value
            for key in type(self).model_fields
            if key != "match" and (value := getattr(self, key)) is not None
        }


def fits(pattern: str, name: str) -> bool:
    """Tell whether a name fits a pattern in which ``*`` stands for any letters; brackets are only brackets."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
