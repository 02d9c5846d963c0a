"""Everything in the registry carries the plugin that declared it."""

from lmcache_core.contracts.metric import TelemetryContext
from lmcache_core.errors import PluginError
from lmcache_core.registry import PluginRegistry, load_plugins

CONTEXT = TelemetryContext(chunk_tokens=256, deployment_mode="single_process")


def test_tables_carry_their_plugin(good: PluginRegistry) -> None:
    assert [(one.plugin, one.origin, one.value.table) for one in good.tables()] == [("good", "acme-good 1.0", "good")]


def test_health_checks_are_classes(good: PluginRegistry) -> None:
    assert [one.value.__name__ for one in good.health_checks()] == ["GoodCheck"]


def test_policies_are_by_name(good: PluginRegistry) -> None:
    assert {name: one.value.__name__ for name, one in good.policies().items()} == {"good": "GoodPolicy"}


def test_backends_are_by_scheme(good: PluginRegistry) -> None:
    assert list(good.backends()) == ["good", "goods"]
    assert good.backends()["good"] == good.backends()["goods"]


def test_commands_and_sinks_are_by_name(good: PluginRegistry) -> None:
    assert good.commands()["good"].value.target == "acme_good.command:hello"
    assert good.usage_sinks()["good"].plugin == "good"


def test_usage_messages_are_classes(good: PluginRegistry) -> None:
    assert [one.value.__name__ for one in good.usage_messages()] == ["GoodMessage"]


def test_metric_specs_get_the_context(good: PluginRegistry) -> None:
    (spec,) = good.metric_specs(CONTEXT)

    assert spec.value.extract(None) == 256


def test_a_hook_need_not_take_the_context(good: PluginRegistry) -> None:
    (subscriber,) = good.event_subscribers(CONTEXT)

    assert list(subscriber.value.get_subscriptions()) == ["good.seen"]


def test_empty_registry_has_nothing() -> None:
    registry = PluginRegistry()

    assert (registry.plugins, registry.tables(), registry.backends(), registry.failed()) == ((), [], {}, {})
    assert registry.unusable("redis") is None


def test_failing_metric_specs_leave_the_others(install) -> None:
    registry = load_plugins(entry_points=install("late", "good"))

    assert [one.plugin for one in registry.metric_specs(CONTEXT)] == ["good"]
    assert registry.failed() == {
        "late_specs": "hook lmcache_metric_specs raised RuntimeError: no metrics for single_process"
    }


def test_wrong_event_subscriber_is_told_and_counted(install) -> None:
    registry = load_plugins(entry_points=install("late", only=["late_wrong"]))
    told: list[PluginError] = []

    assert registry.event_subscribers(CONTEXT, on_hook_error=told.append) == []
    reason = "hook lmcache_event_subscribers gave an object of type 'object', which is no EventSubscriber"
    assert [str(one) for one in told] == [f"plugin 'late_wrong' (acme-late 1.0): {reason}"]
    assert registry.failed() == {"late_wrong": reason}
