"""Joins ``lmcache.v1.storage_backend.connector``: LMCache imports what is here under that name."""
