import email.no_such_module  # noqa: F401
