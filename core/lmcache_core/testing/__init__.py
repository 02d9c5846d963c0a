"""Tests that authors of plugins inherit. Nothing in the product imports this package; it needs pytest."""
