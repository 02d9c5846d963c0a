from acme_broken import nothing_of_that_name  # noqa: F401
