from lmcache_core import hookimpl

lmcache_api = "<1"


@hookimpl
def lmcache_checks_of_old():
    return []
