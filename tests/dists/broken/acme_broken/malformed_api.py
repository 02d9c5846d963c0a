from lmcache_core import hookimpl

lmcache_api = "one or two"


@hookimpl
def lmcache_health_checks():
    return []
