"""Plugins that come with lmcache-core; inside, each looks like a third party's."""
