from lmcache_core import hookimpl


@hookimpl
def lmcache_health_checks():
    return []


@hookimpl(specname="lmcache_health_checks")
def more_checks():
    return []
