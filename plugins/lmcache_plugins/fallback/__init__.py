"""Built-in plugin ``fallback``: the policies ``recompute`` and ``local_cpu``."""
