from lmcache_core import StorageBackendSpec, hookimpl


def build(url, options, context):
    raise NotImplementedError


@hookimpl
def lmcache_storage_backends():
    yield StorageBackendSpec(
        schemes=("acme", "acmes"),
        options=None,
        build=build,
        requires=("acme_client.sync",),
        extra="acme-missing[client]",
    )
