"""Built-in plugin ``thread_health``: the health check of background threads."""
