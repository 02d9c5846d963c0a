from lmcache_core import hookimpl


@hookimpl
def lmcache_health_checks():
    return []
