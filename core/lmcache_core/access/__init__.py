"""Chunks by their digests, wherever they are: the same protocol in this process and over the wire."""
