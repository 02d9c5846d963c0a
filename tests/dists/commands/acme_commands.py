"""Declares commands that are not there."""

from lmcache_core import CommandSpec, hookimpl

NUMBER = 3


@hookimpl
def lmcache_commands():
    yield CommandSpec(name="absent", help="", target="acme_commands_absent:run")
    yield CommandSpec(name="number", help="", target="acme_commands:NUMBER")
