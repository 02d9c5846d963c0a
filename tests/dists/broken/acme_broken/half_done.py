from lmcache_core import PluginSettings, hookimpl


class HalfSettings(PluginSettings):
    table = "half"


@hookimpl
def lmcache_settings():
    yield HalfSettings


@hookimpl
def lmcache_health_checks():
    yield from ()
    raise RuntimeError("the second half is missing")
