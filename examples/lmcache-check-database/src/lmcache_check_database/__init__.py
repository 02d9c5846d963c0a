"""A health check for lmcache-core that asks a database."""
