from lmcache_core import PluginSettings, StorageBackendSpec, hookimpl


class OddSettings(PluginSettings):
    table = "odd"


def build(url, options, context):
    raise NotImplementedError


@hookimpl
def lmcache_storage_backends():
    yield StorageBackendSpec(schemes=("odd",), options=OddSettings, build=build)
