from lmcache_core import StorageBackendSpec, hookimpl


@hookimpl
def lmcache_storage_backends():
    yield StorageBackendSpec(schemes=("ODD",), options=None, build=print)
