"""Watches every part of the cache and says whether it may serve."""
