from lmcache_core import StorageBackendSpec, hookimpl


def build(url, options, context):
    raise NotImplementedError


@hookimpl
def lmcache_storage_backends():
    yield StorageBackendSpec(schemes=("plain",), options=None, build=build, requires=("json",))
    yield StorageBackendSpec(schemes=("fancy",), options=None, build=build, requires=("acme_client",))
