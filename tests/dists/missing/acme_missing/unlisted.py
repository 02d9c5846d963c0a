import acme_unlisted  # noqa: F401
