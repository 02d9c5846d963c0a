def lmcache_settings(:
