"""Token sequences to chunk keys."""
