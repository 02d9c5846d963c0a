"""What a server's refusals mean, in one sentence each."""

from __future__ import annotations

from lmcache_core import BackendError, BackendFullError
from lmcache_plugins.redis.resp import Refusal

_CLUSTER = frozenset({"MOVED", "ASK", "CLUSTERDOWN", "CROSSSLOT", "TRYAGAIN"})
_SENTENCES = {
    "LOADING": "the server is still loading its data; it will answer when that is done",
    "READONLY": "the server is a read-only replica; name the primary",
    "NOAUTH": "the server wants a password; set it in the address or in extra_config.redis.password",
    "WRONGPASS": "the server refused the user name or password",
    "MISCONF": "the server refuses writes, as it cannot save its data; look at its disk and log",
    "MASTERDOWN": "the replica has lost its primary",
    "DENIED": "the server is in protected mode; give it a password or let it bind to this network",
}
CLUSTER_SENTENCE = "the server runs in cluster mode, which is not supported yet; name a standalone server"


class RefusedError(Exception):
    """The server refused in the middle of a call; `refused` says what that means.

    Attributes:
        refusal: Its words.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def refused(refusal: Refusal, *, who: str, secret: str = "") -> BackendError:
    """Make an error of a refusal; `secret` never shows, whatever the server writes."""
    text = refusal.text.replace(secret, "***") if secret else refusal.text
    if refusal.code == "OOM":
        return BackendFullError(
            f"{who}: the server is out of memory (remote_oom); raise maxmemory, set ttl_s, "
            "or let it evict with allkeys-lru"
        )
    if refusal.code in _CLUSTER:
        return BackendError(f"{who}: {CLUSTER_SENTENCE}")
    if refusal.code == "NOPERM":
        return BackendError(f"{who}: the user lacks a right ({text.lower()}); see the list in the reference")
    if "without any password configured" in text:
        return BackendError(f"{who}: the server has no password for this user; remove it from the configuration")
    if "DB index is out of range" in text:
        return BackendError(f"{who}: the server has no database of that number")
    return BackendError(f"{who}: {_SENTENCES.get(refusal.code, f'the server refused: {text}')}")
