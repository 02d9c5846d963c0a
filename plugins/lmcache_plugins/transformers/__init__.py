"""Prefixes from the cache for any causal language model of transformers: `generation.CachedGeneration`.

No plugin of the cache but a user of it: it declares no hooks, so there is no hooks module and no entry point.
"""

try:
    import transformers  # noqa: F401 - only to say here, once, what is missing
except ImportError as error:
    raise ImportError(
        "the transformers integration needs 'transformers'; run: pip install 'lmcache-core[transformers]'"
    ) from error
