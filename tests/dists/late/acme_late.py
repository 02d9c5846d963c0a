"""Plugins that load well and fail when a later hook is called."""

import sys

from lmcache_core import hookimpl


class Specs:
    @hookimpl
    def lmcache_metric_specs(self, context):
        raise RuntimeError(f"no metrics for {context.deployment_mode}")


class Wrong:
    @hookimpl
    def lmcache_event_subscribers(self):
        return [object()]


class Told:
    @hookimpl
    def lmcache_health_changed(self, report):
        raise RuntimeError("no network")


class Coroutine:
    @hookimpl
    def lmcache_health_changed(self, report):
        return self.tell()

    async def tell(self):
        pass


class Leaver:
    @hookimpl
    def lmcache_health_changed(self, report):
        sys.exit(1)


specs = Specs()
wrong = Wrong()
told = Told()
coroutine = Coroutine()
leaver = Leaver()
