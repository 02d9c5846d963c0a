"""How a check wants to be run and answered: its properties, under what the configuration says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lmcache_core.contracts.control import HealthOptions
from lmcache_core.contracts.health import HealthCheck

_PINGS_PER_RUN = 3  # HealthCheck.timeout: None means three times the ping timeout
_FAST_RUNS = 5  # HealthCheck.fast_interval: None means a fifth of the interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTerms:
    """How a check is run and answered, read once a round.

    Attributes:
        interval_s: Seconds between the starts of two runs, above 0.
        timeout_s: Seconds one run may take, above 0.
        rise: Passing runs in a row that make it healthy, at least 1.
        fall: Failing runs in a row that make it failed, at least 1.
        ladder: Names of its fallback policies, the first to use first; at least one.
        backend: The backend it speaks for, or None.
        fast_interval_s: The interval while it fails, above 0.
        jitter: Share of an interval by which a run may come early, 0 to below 1.
        initial_delay_s: Seconds until the first run.
        ladder_s: Seconds one rung may last while it fails, above 0.
        enforce: False: its failures stop nothing.
        group: Its group, or ``""``.
        depends_on: Patterns of the checks and groups it depends on.
    """

    interval_s: float
    timeout_s: float
    rise: int = 1
    fall: int = 1
    ladder: tuple[str, ...]
    backend: str | None = None
    fast_interval_s: float
    jitter: float = 0.0
    initial_delay_s: float = 0.0
    ladder_s: float = 30.0
    enforce: bool = True
    group: str = ""
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TermReader:
    """Reads the terms of one check.

    Args:
        options: Defaults for what neither the configuration nor the check says.
        configured: What ``[[extra_config.checks]]`` says of it, by the property's name; wins over the check.
    """

    options: HealthOptions
    configured: Mapping[str, object] = field(default_factory=dict)

    def read(self, check: HealthCheck) -> CheckTerms:
        """Read a check's properties.

        Raises:
            ValueError: One has a value that cannot be used; says which and what is due.
        """
        interval_s = _seconds("interval", self._of(check, "interval", self.options.ping_interval))
        backend = check.get_bypass_backend_name()
        if backend is not None and not isinstance(backend, str):
            raise ValueError(f"get_bypass_backend_name must give a name or None, got {backend!r}")
        fast_s = self._of(check, "fast_interval", interval_s / _FAST_RUNS)
        return CheckTerms(
            interval_s=interval_s,
            timeout_s=_seconds("timeout", self._of(check, "timeout", _PINGS_PER_RUN * self.options.ping_timeout)),
            rise=_count("rise", self._of(check, "rise")),
            fall=_count("fall", self._of(check, "fall")),
            ladder=_ladder(self._of(check, "fallback_policy")),
            backend=backend,
            fast_interval_s=min(interval_s, _seconds("fast_interval", fast_s)),
            jitter=_share("jitter", self._of(check, "jitter")),
            initial_delay_s=_delay("initial_delay", self._of(check, "initial_delay")),
            ladder_s=_seconds(
                "policy_ladder_secs", self._of(check, "policy_ladder_secs", self.options.policy_ladder_secs)
            ),
            enforce=_switch("enforce", self._of(check, "enforce")),
            group=_text("group", self._of(check, "group")),
            depends_on=_texts("depends_on", self._of(check, "depends_on")),
        )

    def _of(self, check: HealthCheck, name: str, default: object = None) -> object:
        value: object = self.configured.get(name)
        if value is None:
            value = getattr(check, name)
        return default if value is None else value


def _seconds(name: str, value: object) -> float:
    number = _number(value)
    if number is not None and number > 0:
        return number
    raise ValueError(f"{name} must be a finite number of seconds above 0, got {value!r}")


def _delay(name: str, value: object) -> float:
    number = _number(value)
    if number is not None and number >= 0:
        return number
    raise ValueError(f"{name} must be a finite number of seconds of at least 0, got {value!r}")


def _share(name: str, value: object) -> float:
    number = _number(value)
    if number is not None and 0 <= number < 1:
        return number
    raise ValueError(f"{name} must be a number from 0 to below 1, got {value!r}")


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _count(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _switch(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be True or False, got {value!r}")


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} must be text, got {value!r}")


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise ValueError(f"{name} must be a list of names, got {value!r}")


def _ladder(value: object) -> tuple[str, ...]:
    rungs = (value,) if isinstance(value, str) else value
    if isinstance(rungs, Sequence) and rungs and all(isinstance(rung, str) for rung in rungs):
        return tuple(rungs)
    raise ValueError(f"fallback_policy must be a policy's name or a list of names, got {value!r}")
