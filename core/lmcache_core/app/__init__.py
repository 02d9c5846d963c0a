"""The only place that builds objects and joins them: a cache in this process, a server's, a server's client."""
