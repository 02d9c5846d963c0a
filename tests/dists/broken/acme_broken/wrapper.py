from lmcache_core import hookimpl


@hookimpl(wrapper=True)
def lmcache_health_checks():
    return (yield)
