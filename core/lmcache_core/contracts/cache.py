"""The cache as an inference engine sees it, in this process or in a server's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Mask: TypeAlias = "npt.NDArray[np.bool_]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What a clear did to one tier.

    Attributes:
        backend: The tier.
        chunks: Chunks no longer found; -1 where the tier cannot be cleared safely.
        leased: How many of them a reader still holds; their memory comes free when it lets go.
        reason: Why the tier was left alone; ``""`` if it was not.
    """

    backend: str
    chunks: int
    leased: int = 0
    reason: str = ""


class PendingLookup(Protocol):
    """A lookup under way. Any thread, one at a time."""

    def done(self) -> bool:
        """Whether `result` would not wait. Never blocks."""

    def result(self, timeout_s: float | None = None) -> int:
        """Wait for the tokens promised, at most so long, and never past the lookup's own deadline; 0 when late."""

    def cancel(self) -> None:
        """Give the lookup up, with what it has promised or will promise. Harmless when it is over."""


class KVAdapter(Protocol):
    """Moves KV between an engine's tensors and block bytes; `adapters` has them."""

    def check(self, kv: Any, tokens: int) -> None:
        """Refuse a tensor that is not this layout's KV of so many tokens.

        Raises:
            LayoutError: Says what was expected and what came.
        """

    def gather(self, kv: Any, starts: Sequence[int], outs: Sequence[memoryview]) -> None:
        """Copy the chunks that begin at these tokens into payloads; complete when it returns."""

    def scatter(self, payload: memoryview, kv: Any, start: int) -> None:
        """Copy one chunk's payload into the tensor from a token on; complete when `finish` returns."""

    def finish(self, kv: Any) -> None:
        """Wait until every scatter into this tensor is complete."""


class KVCache(Protocol):
    """What `CacheEngine` and `CacheClient` both are. Any thread; no method raises an `Exception`.

    ``salt`` is the tenant's; chunks of two salts never meet. ``variant`` is any further identity of the
    KV, such as a LoRA adapter's name. ``request_id`` ties a retrieve to its lookup.
    """

    @property
    def chunk_tokens(self) -> int:
        """Tokens in a chunk; 0 while that is not known, as no server has been reached yet."""

    @property
    def save_unfull_chunk(self) -> bool:
        """Whether the rest of a sequence that fills no chunk is kept and found too."""

    def is_healthy(self) -> bool:
        """Whether calls are served now; False means that each is a no-op."""

    def store(
        self, tokens: Any, kv: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> int:
        """Keep the KV of all chunks behind the skipped tokens that are not kept yet; give the tokens newly kept."""

    def lookup(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> int:
        """Count the leading tokens that a retrieve will deliver, and hold them for it."""

    def lookup_async(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> PendingLookup:
        """Begin a lookup, and the loading of what it finds in further tiers."""

    def retrieve(
        self, tokens: Any, out: Any, *, salt: str = "", variant: str = "", request_id: str = "", skip_tokens: int = 0
    ) -> Mask:
        """Fill the KV of the leading tokens that are kept; True for each such token."""

    def release(self, tokens: Any, *, salt: str = "", variant: str = "", request_id: str = "") -> bool:
        """Give up a lookup that no retrieve will follow."""

    def clear(self) -> list[Cleared]:
        """Drop every chunk of the tiers that are this cache's own; say what happened to each."""
