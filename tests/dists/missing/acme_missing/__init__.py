"""Each module needs something that is not installed."""
