def lmcache_health_checks():
    return []
