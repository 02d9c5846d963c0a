"""Built-in plugin ``fallback``: ``recompute``, ``local_cpu``, ``bypass``, ``read_only`` and ``write_only``."""
