"""The multi-process cache server: one arena and one set of tiers for every inference process of a host."""
