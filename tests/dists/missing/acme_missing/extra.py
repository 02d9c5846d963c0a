import acme_client  # noqa: F401
