from lmcache_core import hookimpl

lmcache_api = 1


@hookimpl
def lmcache_health_checks():
    return []
