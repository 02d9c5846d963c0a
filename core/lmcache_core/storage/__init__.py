"""Tiers: local CPU, the guarded stores behind it, and writing back to them."""
