from lmcache_core import StorageBackendSpec, hookimpl


async def build(url, options, context):
    raise NotImplementedError


@hookimpl
def lmcache_storage_backends():
    yield StorageBackendSpec(schemes=("odd",), options=None, build=build)
