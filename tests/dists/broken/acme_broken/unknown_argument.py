from lmcache_core import hookimpl


@hookimpl
def lmcache_metric_specs(config):
    return []
