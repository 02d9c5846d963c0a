"""A plugin that declares one of everything, correctly."""
