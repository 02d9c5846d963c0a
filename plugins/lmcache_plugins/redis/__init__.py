"""The store behind ``redis://``, ``rediss://``, ``valkey://``, ``valkeys://`` and ``unix://``."""
