"""For authors of plugins and for drills: contracts as tests, and faults on demand.

Nothing in the product imports this package. The names are imported on first use: only the contract and the
fixtures need pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmcache_core.testing.call_faults import Call as Call
    from lmcache_core.testing.call_faults import CallDelay as CallDelay
    from lmcache_core.testing.call_faults import CallError as CallError
    from lmcache_core.testing.call_faults import CallFault as CallFault
    from lmcache_core.testing.call_faults import CallHang as CallHang
    from lmcache_core.testing.call_faults import LoadCorruption as LoadCorruption
    from lmcache_core.testing.call_faults import LoadFailure as LoadFailure
    from lmcache_core.testing.call_faults import LoadMiss as LoadMiss
    from lmcache_core.testing.call_faults import LoadTruncation as LoadTruncation
    from lmcache_core.testing.call_faults import StoreCut as StoreCut
    from lmcache_core.testing.call_switch import CallStatistics as CallStatistics
    from lmcache_core.testing.fault_proxy import FaultProxy as FaultProxy
    from lmcache_core.testing.faulty_backend import FaultyBackend as FaultyBackend
    from lmcache_core.testing.network_faults import Blackhole as Blackhole
    from lmcache_core.testing.network_faults import Corrupt as Corrupt
    from lmcache_core.testing.network_faults import Cut as Cut
    from lmcache_core.testing.network_faults import Drip as Drip
    from lmcache_core.testing.network_faults import ErrorReply as ErrorReply
    from lmcache_core.testing.network_faults import HalfOpen as HalfOpen
    from lmcache_core.testing.network_faults import Hang as Hang
    from lmcache_core.testing.network_faults import Latency as Latency
    from lmcache_core.testing.network_faults import NetworkFault as NetworkFault
    from lmcache_core.testing.network_faults import Refuse as Refuse
    from lmcache_core.testing.network_faults import Way as Way
    from lmcache_core.testing.schedule import Clear as Clear
    from lmcache_core.testing.schedule import Schedule as Schedule
    from lmcache_core.testing.schedule import flapping as flapping
    from lmcache_core.testing.storage import StorageBackendContract as StorageBackendContract
    from lmcache_core.testing.switchboard import ProxyStatistics as ProxyStatistics

_HOME = {
    "Blackhole": "network_faults",
    "Call": "call_faults",
    "CallDelay": "call_faults",
    "CallError": "call_faults",
    "CallFault": "call_faults",
    "CallHang": "call_faults",
    "CallStatistics": "call_switch",
    "Clear": "schedule",
    "Corrupt": "network_faults",
    "Cut": "network_faults",
    "Drip": "network_faults",
    "ErrorReply": "network_faults",
    "FaultProxy": "fault_proxy",
    "FaultyBackend": "faulty_backend",
    "HalfOpen": "network_faults",
    "Hang": "network_faults",
    "Latency": "network_faults",
    "LoadCorruption": "call_faults",
    "LoadFailure": "call_faults",
    "LoadMiss": "call_faults",
    "LoadTruncation": "call_faults",
    "NetworkFault": "network_faults",
    "ProxyStatistics": "switchboard",
    "Refuse": "network_faults",
    "Schedule": "schedule",
    "StorageBackendContract": "storage",
    "StoreCut": "call_faults",
    "Way": "network_faults",
    "flapping": "schedule",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - made from the one list above


def __getattr__(name: str) -> object:
    """Import a name on first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'lmcache_core.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"lmcache_core.testing.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the names without importing them."""
    return list(__all__)
