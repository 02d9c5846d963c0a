"""Joins ``lmcache.v1.health_monitor.checks``: LMCache imports what is here under that name."""
