"""Built-in plugin ``write_behind_health``: the health check of the queues in front of the stores."""
