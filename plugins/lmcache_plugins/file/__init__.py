"""Stores made of files: ``file://`` for a shared folder, ``disk://`` for one instance's own disk."""
