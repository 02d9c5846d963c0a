"""Built-in plugin ``push``: health checks whose evidence comes from outside."""
