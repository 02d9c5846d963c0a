"""Built-in plugin ``remote_health``: one health check for each store behind tier 0."""
