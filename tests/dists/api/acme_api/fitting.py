from lmcache_core import hookimpl

lmcache_api = ">=1,<2"


@hookimpl
def lmcache_health_checks():
    return []
