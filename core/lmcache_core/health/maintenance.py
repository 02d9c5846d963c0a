"""Whether an operator holds a backend out, so that nothing has to answer for its failures."""

from __future__ import annotations

from lmcache_core.contracts.control import StorageControl

_OPERATOR = "operator"


def maintenance_of(backend: str | None, storage: StorageControl) -> str:
    """Say which operators hold a backend out of reads and of writes; ``""`` while live traffic still reaches it."""
    if backend is None:
        return ""
    holds = {owner: hold for owner, hold in storage.holds(backend).items() if owner.startswith(_OPERATOR)}
    if not (any(hold.reads for hold in holds.values()) and any(hold.writes for hold in holds.values())):
        return ""
    whose = (f"{owner} ({hold.reason})" if hold.reason else owner for owner, hold in sorted(holds.items()))
    return f"left out by {', '.join(whose)}"
