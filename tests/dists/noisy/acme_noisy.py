"""Prints while it is imported; a command with --json must give JSON all the same."""

from lmcache_core import hookimpl

print("acme-noisy says hello")


@hookimpl
def lmcache_health_checks():
    return []
