"""One module that two distributions bring under two names, so that every name in it clashes."""

from typing import ClassVar

from lmcache_core import (
    CommandSpec,
    FallbackPolicy,
    PluginSettings,
    StorageBackendSpec,
    UsageMessage,
    UsageSinkSpec,
    hookimpl,
)


class ClaimSettings(PluginSettings):
    table = "claimed"


class ClaimPolicy(FallbackPolicy):
    name: ClassVar[str] = "claimed"
    keeps_serving: ClassVar[bool] = False

    def engage(self, check, storage):
        pass

    def release(self, check, storage):
        pass


class ClaimMessage(UsageMessage):
    pass


def build(*arguments):
    raise NotImplementedError


class Tables:
    @hookimpl
    def lmcache_settings(self):
        yield ClaimSettings


class Policies:
    @hookimpl
    def lmcache_fallback_policies(self):
        yield ClaimPolicy


class Schemes:
    @hookimpl
    def lmcache_storage_backends(self):
        yield StorageBackendSpec(schemes=("claimed",), options=None, build=build)


class Messages:
    @hookimpl
    def lmcache_usage_messages(self):
        yield ClaimMessage


class Sinks:
    @hookimpl
    def lmcache_usage_sinks(self):
        yield UsageSinkSpec(name="claimed", options=None, build=build)


class Commands:
    @hookimpl
    def lmcache_commands(self):
        yield CommandSpec(name="claimed", help="", target="acme_claims:build")


class CoreCommand:
    @hookimpl
    def lmcache_commands(self):
        yield CommandSpec(name="plugins", help="", target="acme_claims:build")


tables = Tables()
policies = Policies()
schemes = Schemes()
messages = Messages()
sinks = Sinks()
commands = Commands()
core_command = CoreCommand()
