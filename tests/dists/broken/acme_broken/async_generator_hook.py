from lmcache_core import hookimpl


@hookimpl
async def lmcache_health_checks():
    yield None
