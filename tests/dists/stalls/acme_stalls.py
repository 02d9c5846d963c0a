"""Plugins that load at once and hang when they are to make something, or are told something."""

import threading
from typing import ClassVar

from acme_valve import wait_for_an_answer

from lmcache_core import EventSubscriber, FallbackPolicy, HealthCheck, StorageBackend, StorageBackendSpec, hookimpl

CLOSED = threading.Event()
TOLD = []
ASKED = []


class LateStore(StorageBackend):
    def contains(self, keys, *, deadline):
        return 0

    def load_into(self, keys, outs, *, deadline):
        raise NotImplementedError

    def store(self, items, *, deadline):
        pass

    def delete(self, keys, *, deadline):
        return 0

    def ping(self, *, deadline):
        pass

    def close(self):
        CLOSED.set()


def build(url, options, context):
    if url.host == "raises":
        raise RuntimeError("no licence")
    if url.host == "exits":
        raise SystemExit(3)
    if url.host == "nothing":
        return None
    wait_for_an_answer()
    if url.host == "raises-late":
        raise RuntimeError("no licence")
    return LateStore()


class LateCheck(HealthCheck):
    def name(self):
        return "late"

    def check(self):
        return True

    @classmethod
    def create(cls, manager):
        wait_for_an_answer()
        return [cls()]


class NamelessCheck(HealthCheck):
    def name(self):
        wait_for_an_answer()
        return "nameless"

    def check(self):
        return True

    @classmethod
    def create(cls, manager):
        return [cls()]


class ForgetfulCheck(HealthCheck):
    """Answers at once, and never again."""

    def name(self):
        ASKED.append(self)
        if len(ASKED) > 1:
            wait_for_an_answer()
        return "forgetful"

    def check(self):
        return False

    @property
    def fallback_policy(self):
        return "bypass"

    def get_bypass_backend_name(self):
        return "RemoteBackend"

    @classmethod
    def create(cls, manager):
        return [cls()]


class LatePolicy(FallbackPolicy):
    name: ClassVar[str] = "late"
    keeps_serving: ClassVar[bool] = True

    def __init__(self):
        wait_for_an_answer()

    def engage(self, check, storage):
        pass

    def release(self, check, storage):
        pass


class LateSubscriber(EventSubscriber):
    def get_subscriptions(self):
        wait_for_an_answer()
        return {}


class InBuild:
    @hookimpl
    def lmcache_storage_backends(self):
        return [StorageBackendSpec(schemes=("stall",), options=None, build=build)]


class InCreate:
    @hookimpl
    def lmcache_health_checks(self):
        return [LateCheck]


class InName:
    @hookimpl
    def lmcache_health_checks(self):
        return [NamelessCheck]


class InNameAgain:
    @hookimpl
    def lmcache_health_checks(self):
        return [ForgetfulCheck]


class InPolicy:
    @hookimpl
    def lmcache_fallback_policies(self):
        return [LatePolicy]


class InSubscriptions:
    @hookimpl
    def lmcache_event_subscribers(self):
        return [LateSubscriber()]


class InSubscribers:
    @hookimpl
    def lmcache_event_subscribers(self):
        wait_for_an_answer()
        return []


class InSpecs:
    @hookimpl
    def lmcache_metric_specs(self):
        wait_for_an_answer()
        return []


class WhenTold:
    @hookimpl
    def lmcache_health_changed(self, report):
        if not TOLD:
            TOLD.append(report)
            wait_for_an_answer()
            return
        TOLD.append(report)


in_build = InBuild()
in_create = InCreate()
in_name = InName()
in_name_again = InNameAgain()
in_policy = InPolicy()
in_subscriptions = InSubscriptions()
in_subscribers = InSubscribers()
in_specs = InSpecs()
when_told = WhenTold()
