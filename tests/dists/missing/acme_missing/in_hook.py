from lmcache_core import hookimpl


@hookimpl
def lmcache_health_checks():
    import acme_client  # noqa: F401

    return []
