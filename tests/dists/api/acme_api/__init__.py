"""Plugins that say which hook API they need."""
