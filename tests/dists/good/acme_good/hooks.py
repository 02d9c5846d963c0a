"""One of everything."""

from collections.abc import Iterator
from typing import ClassVar

from lmcache_core import (
    CommandSpec,
    Event,
    EventSubscriber,
    FallbackPolicy,
    HealthCheck,
    MetricSpec,
    PluginSettings,
    StorageBackendSpec,
    UsageMessage,
    UsageSinkSpec,
    hookimpl,
)

lmcache_api = ">=1,<2"


class GoodSettings(PluginSettings):
    table = "good"

    room: int = 3
    label: str = ""


class GoodCheck(HealthCheck):
    def name(self):
        return "good"

    def check(self):
        return True

    @classmethod
    def create(cls, manager):
        return [cls()]


class GoodPolicy(FallbackPolicy):
    name: ClassVar[str] = "good"
    keeps_serving: ClassVar[bool] = True

    def engage(self, check, storage):
        pass

    def release(self, check, storage):
        pass


class GoodMessage(UsageMessage):
    pass


class GoodSubscriber(EventSubscriber):
    def get_subscriptions(self):
        return {"good.seen": self.see}

    def see(self, event: Event):
        pass


def build(*arguments):
    raise NotImplementedError


@hookimpl
def lmcache_settings() -> Iterator[type[PluginSettings]]:
    yield GoodSettings


@hookimpl
def lmcache_health_checks():
    return [GoodCheck]


@hookimpl
def lmcache_fallback_policies():
    yield GoodPolicy


@hookimpl
def lmcache_storage_backends():
    yield StorageBackendSpec(schemes=("good", "goods"), options=GoodSettings, build=build)


@hookimpl
def lmcache_metric_specs(context):
    yield MetricSpec("good.seen", "interval_num_hit_tokens", lambda event: context.chunk_tokens, sum)


@hookimpl
def lmcache_usage_messages():
    yield GoodMessage


@hookimpl
def lmcache_event_subscribers():  # an argument that is not needed may be left out
    yield GoodSubscriber()


@hookimpl
def lmcache_usage_sinks():
    yield UsageSinkSpec(name="good", options=None, build=build)


@hookimpl
def lmcache_commands():
    yield CommandSpec(name="good", help="Say hello.", target="acme_good.command:hello")


@hookimpl
def lmcache_health_changed(report):
    report.details["good"] = True
