import acme_broken.not_there  # noqa: F401
