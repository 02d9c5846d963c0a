"""The plugin host: finds plugins by entry point, loads each alone, and keeps what they declare."""

from lmcache_core.registry.collect import PluginRegistry
from lmcache_core.registry.load import load_plugins
from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.registry.record import Declared, PluginRecord, PluginState

__all__ = ["Declared", "PluginRecord", "PluginRegistry", "PluginSet", "PluginState", "load_plugins"]
