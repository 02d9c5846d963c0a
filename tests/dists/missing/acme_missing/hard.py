import acme_hard_dependency.part  # noqa: F401
