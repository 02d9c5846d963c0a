from lmcache_core import hookimpl


@hookimpl
def zzz():
    return []
