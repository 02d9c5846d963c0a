"""A plugin whose import does not return for a minute."""

from acme_gate import wait_for_an_answer

from lmcache_core import hookimpl

wait_for_an_answer()


@hookimpl
def lmcache_health_checks():
    return []
