from lmcache_core import hookimpl


@hookimpl
def lmcache_health_checks():
    return []


@hookimpl(optionalhook=True)
def lmcache_of_a_later_version():
    return []
