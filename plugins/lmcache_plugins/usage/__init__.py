"""Built-in plugin ``usage``: the default usage messages and the metrics that fill them."""
