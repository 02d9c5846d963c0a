"""Built-in plugin ``local_disk_health``: the health check of file systems that stores keep files in."""
