"""Prometheus families of one instance."""
