"""Plugins that are imported at once and hang in a hook."""

from acme_gate import wait_for_an_answer

from lmcache_core import hookimpl


class InHook:
    @hookimpl
    def lmcache_health_checks(self):
        wait_for_an_answer()
        return []


class InSpecs:
    @hookimpl
    def lmcache_metric_specs(self, context):
        wait_for_an_answer()
        return []


in_hook = InHook()
in_specs = InSpecs()
