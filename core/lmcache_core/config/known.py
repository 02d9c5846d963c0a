"""What loaded plugins bring to the configuration, and what to say about names they do not bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lmcache_core.config.nearest import nearest, suggestion


@dataclass(frozen=True, slots=True)
class Known:
    """Names that the configuration may use.

    Attributes:
        policies: Fallback policy's name to its plugin.
        schemes: URL scheme to its plugin.
        unloaded: Plugin's name to why it is not loaded.
    """

    policies: Mapping[str, str]
    schemes: Mapping[str, str]
    unloaded: Mapping[str, str]

    def scheme_problem(self, scheme: str) -> str | None:
        """Say that no plugin serves a scheme; None where one does."""
        if scheme in self.schemes:
            return None
        return f"no loaded plugin serves {scheme}://{self._instead(scheme, self.schemes)}"

    def policy_problem(self, policy: str) -> str | None:
        """Say that no plugin brings a policy; None where one does."""
        if policy in self.policies:
            return None
        return f"{policy!r} is no fallback policy of any loaded plugin{self._instead(policy, self.policies)}"

    def _instead(self, name: str, known: Mapping[str, str]) -> str:
        owner = next((plugin for plugin in self.unloaded if nearest(name, [plugin]) is not None), None)
        if owner is not None:
            return f"; plugin {owner!r} is not loaded: {self.unloaded[owner]}"
        listing = f" (known: {', '.join(sorted(known)) or 'none'})"
        return listing + suggestion(name, sorted(known))
