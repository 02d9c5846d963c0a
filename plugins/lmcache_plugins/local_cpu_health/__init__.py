"""Built-in plugin ``local_cpu_health``: the health check of tier 0, CPU memory."""
