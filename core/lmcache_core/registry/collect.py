"""All that the loaded plugins declare, each item with the plugin that declared it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from lmcache_core.contracts.command import CommandSpec, UsageSinkSpec
from lmcache_core.contracts.event import EventSubscriber
from lmcache_core.contracts.fallback import FallbackPolicy
from lmcache_core.contracts.health import HealthCheck
from lmcache_core.contracts.message import UsageMessage
from lmcache_core.contracts.metric import MetricSpec, TelemetryContext
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.contracts.storage import StorageBackendSpec
from lmcache_core.errors import LMCacheError, PluginError, PluginUnavailableError
from lmcache_core.registry import conform
from lmcache_core.registry.discover import Found
from lmcache_core.registry.hooks import blame
from lmcache_core.registry.listener import Listener, Listeners
from lmcache_core.registry.loaded import LoadedPlugin
from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.registry.record import Declared, PluginRecord, PluginState
from lmcache_core.registry.watched import OverdueError, WatchedCall

log = logging.getLogger(__name__)

OnHookError = Callable[[PluginError], None]
"""Told why a plugin's hook gave nothing; the place to log and count it. What it raises passes."""


class PluginRegistry:
    """Everything the plugins brought. Built by `load_plugins`; read from any thread.

    Args:
        records: All discovered plugins, in order.
        loaded: Those whose declarations are in force, in order.
        problems: What would have stopped start-up, had it been strict.
        limit_s: Seconds that a third party's code may take when it is asked, or makes something, later on.
    """

    def __init__(
        self,
        records: Sequence[PluginRecord] = (),
        loaded: Sequence[LoadedPlugin] = (),
        problems: Sequence[LMCacheError] = (),
        limit_s: float = 10.0,
    ) -> None:
        self.plugins = tuple(records)
        self.problems = tuple(problems)
        self._loaded = tuple(loaded)
        self.limit_s = limit_s
        self._late: dict[str, str] = {}

    def in_force(self) -> PluginSet:
        """Names and versions of those in force, to be compared with another process's."""
        return PluginSet.of(self.plugins)

    def tables(self) -> list[Declared[type[PluginSettings]]]:
        """Models of the tables that plugins own."""
        return [item for one in self._loaded for item in one.credit(one.declared.tables)]

    def health_checks(self) -> list[Declared[type[HealthCheck]]]:
        """Classes of health checks, built-in ones first: of two checks with one name, the first counts."""
        checks = [item for one in self._loaded for item in one.credit(one.declared.checks)]
        return sorted(checks, key=lambda item: not item.builtin)

    def policies(self) -> dict[str, Declared[type[FallbackPolicy]]]:
        """Fallback policies by name."""
        return {item.value.name: item for one in self._loaded for item in one.credit(one.declared.policies)}

    def backends(self) -> dict[str, Declared[StorageBackendSpec]]:
        """Kinds of store by URL scheme, usable or not; see `unusable`."""
        return {
            scheme: item
            for one in self._loaded
            for item in one.credit(one.declared.backends)
            for scheme in item.value.schemes
        }

    def unusable(self, scheme: str) -> PluginUnavailableError | None:
        """Say what must be installed before a scheme's store can be built; None when it can be."""
        for one in self._loaded:
            for spec in one.declared.backends:
                if scheme in spec.schemes:
                    return one.lacking(spec)
        return None

    def usage_messages(self) -> list[Declared[type[UsageMessage]]]:
        """Types of usage message."""
        return [item for one in self._loaded for item in one.credit(one.declared.messages)]

    def usage_sinks(self) -> dict[str, Declared[UsageSinkSpec]]:
        """Usage sinks by name."""
        return {item.value.name: item for one in self._loaded for item in one.credit(one.declared.sinks)}

    def commands(self) -> dict[str, Declared[CommandSpec]]:
        """Sub-commands by name."""
        return {item.value.name: item for one in self._loaded for item in one.credit(one.declared.commands)}

    def metric_specs(
        self, context: TelemetryContext, *, on_hook_error: OnHookError | None = None
    ) -> list[Declared[MetricSpec]]:
        """Ask for metric specs; a plugin that fails here is left out, in `failed`, and told of or logged."""
        items = self._ask("lmcache_metric_specs", context, MetricSpec, on_hook_error)
        return cast("list[Declared[MetricSpec]]", items)

    def event_subscribers(
        self, context: TelemetryContext, *, on_hook_error: OnHookError | None = None
    ) -> list[Declared[EventSubscriber]]:
        """Ask for event subscribers; a plugin that fails here is left out, in `failed`, and told of or logged."""
        items = self._ask("lmcache_event_subscribers", context, EventSubscriber, on_hook_error)
        return cast("list[Declared[EventSubscriber]]", items)

    def health_listeners(self, on_hook_error: Callable[[str], None]) -> Listeners:
        """Give those that want to be told of changes of health. One that raises or hangs harms no other.

        Args:
            on_hook_error: Told the plugin's name each time that it raises, hangs or misses a change.
        """
        hook = "lmcache_health_changed"
        wanting = [one for one in self._loaded if hook in one.hooks.names]
        return Listeners([Listener(one, hook, limit_s=self.limit_s, on_error=on_hook_error) for one in wanting])

    def failed(self) -> dict[str, str]:
        """Plugins that are not in force though nobody disabled them: name to reason."""
        lost = {one.name: one.reason for one in self.plugins if _is_lost(one)}
        return {**lost, **self._late}

    def unloaded(self) -> dict[str, str]:
        """Plugins of which nothing is registered, disabled ones included: name to reason."""
        return {one.name: one.reason for one in self.plugins if not one.registered}

    def _ask(
        self, hook: str, context: TelemetryContext, kind: type, on_hook_error: OnHookError | None
    ) -> list[Declared[object]]:
        answers: list[Declared[object]] = []
        for one in self._loaded:
            items = self._ask_one(one, hook, context, kind, on_hook_error)
            answers.extend(one.credit(items))
        return answers

    def _ask_one(
        self, one: LoadedPlugin, hook: str, context: TelemetryContext, kind: type, on_hook_error: OnHookError | None
    ) -> list[object]:
        try:
            items = self._collect(one, partial(one.hooks.collect, hook, {"context": context}), hook)
            for objection in filter(None, (conform.object_to_instance(item, kind) for item in items)):
                raise one.found.error(f"hook {hook} {objection}")  # noqa: TRY301 - one border for all faults
        except Exception as error:  # noqa: BLE001 - one plugin's hook is a border; telemetry never stops a start-up
            failure = error if isinstance(error, PluginError) else _blame(one.found, hook, error)
            self._late[one.found.name] = failure.reason
            (on_hook_error or _log)(failure)
            return []
        return items

    def _collect(self, one: LoadedPlugin, ask: Callable[[], list[object]], hook: str) -> list[object]:
        if one.found.builtin or hook not in one.hooks.names:
            return ask()
        target = f"{one.found.name}.{hook}"
        if WatchedCall.find_given_up(target) is not None:
            since = "since an earlier start in this process"
            raise one.found.error(f"hook {hook} is still running {since}, so it is left out")
        call: WatchedCall[list[object]] = WatchedCall(ask, target=target, on_late=partial(_tell_late, one.found, hook))
        try:
            return call.wait(self.limit_s)
        except OverdueError as error:
            raise one.found.error(f"hook {hook} is still running {error.since}, so it is left out") from error


def _blame(found: Found, hook: str, error: BaseException) -> PluginError:
    failure = found.error(blame(hook, error))
    failure.__cause__ = error
    return failure


def _log(failure: PluginError) -> None:
    log.warning("%s", failure, exc_info=failure)


def _tell_late(found: Found, hook: str, _outcome: Callable[[], object]) -> None:
    log.warning("%s", found.error(f"hook {hook} has ended after all, too late, and stays left out"))


def _is_lost(record: PluginRecord) -> bool:
    return not record.registered and record.state is not PluginState.DISABLED
