from lmcache_core import PluginSettings, hookimpl


class RepeatedSettings(PluginSettings):
    table = "repeated"


@hookimpl
def lmcache_settings():
    return [RepeatedSettings, RepeatedSettings]
