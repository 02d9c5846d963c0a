"""What a cache server and its clients say to each other; needs the extra ``server``."""

try:
    import msgspec  # noqa: F401 - asked for here, so that its absence is told with the line that mends it
    import zmq  # noqa: F401 - the same
except ImportError as error:
    raise ImportError(
        f"the cache server and its clients need {error.name!r}; run: pip install 'lmcache-core[server]'",
        name=error.name,
    ) from error
