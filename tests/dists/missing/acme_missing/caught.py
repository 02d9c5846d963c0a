try:
    import acme_client  # noqa: F401
except ImportError as error:
    raise ImportError("acme-missing wants its client") from error
