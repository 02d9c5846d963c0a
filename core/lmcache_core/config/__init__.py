"""The configuration: one model, three sources, every key claimed or refused.

`sources.read_sources` reads file, environment and command line; `validate.validate` gives the one
validated `Configuration`, or raises one `ConfigError` that names all offenders.
"""
