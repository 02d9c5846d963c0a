from lmcache_core import hookimpl


class Plugin:
    lmcache_api = ">=2"

    @hookimpl
    def lmcache_health_checks(self):
        return []


plugin = Plugin()
