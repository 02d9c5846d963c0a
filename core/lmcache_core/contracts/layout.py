"""Shape of the attention KV that an engine hands over; what cannot be cached correctly is refused here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lmcache_core.errors import LayoutError

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""Element types that are stored, by torch name, with bytes per element."""

SLIDING_WINDOW = "sliding_window"
"""Kind of a group whose layers attend to the last tokens only."""

SERVED_KINDS = frozenset({"full", "mla", SLIDING_WINDOW})
"""Kinds of KV group whose chunks of a prefix stay valid whatever follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroup:
    """Some layers that keep their KV alike, as engines with hybrid models report them.

    Attributes:
        name: As the engine names it; shown in a refusal.
        kind: ``full``, ``mla``, ``sliding_window``; anything else is refused by `KVLayout`. A chunk holds the KV
            of each of its tokens in layers of a sliding window too: an engine that has dropped some of it must
            not store the chunk, see ``skip_tokens`` of `KVCache.store`.
        num_layers: Layers in the group, at least 1.
        window_tokens: Tokens that a layer attends to, its own among them; 0 for all.
    """

    name: str
    kind: str
    num_layers: int
    window_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """How one token's KV looks; all chunks of an engine share it.

    Attributes:
        num_layers: Attention layers, at least 1.
        num_kv_heads: KV heads of this rank; 1 for MLA.
        head_size: Elements of one head; for MLA the latent and rope part together.
        dtype: One of `DTYPE_BYTES`.
        use_mla: One latent vector a layer instead of K and V.
        groups: Empty for a plain model; else every group the engine has, in the order of its layers in a chunk.
        format: How the engine arranges the bytes of a block, where that is not the plain tensor's order;
            layouts of different formats never share a chunk.

    Raises:
        LayoutError: Names the group or value that cannot be cached correctly, and why.
    """

    num_layers: int
    num_kv_heads: int
    head_size: int
    dtype: str
    use_mla: bool = False
    groups: tuple[KVGroup, ...] = ()
    format: str = ""

    def __post_init__(self) -> None:
        """Refuse at registration, never garble later."""
        for label in ("num_layers", "num_kv_heads", "head_size"):
            value = getattr(self, label)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise LayoutError(f"kv layout: {label} must be a whole number of at least 1, got {value!r}")
        if self.dtype not in DTYPE_BYTES:
            known = ", ".join(sorted(DTYPE_BYTES))
            raise LayoutError(f"kv layout: dtype {self.dtype!r} is not stored; use one of {known}")
        if self.use_mla and self.num_kv_heads != 1:
            raise LayoutError(f"kv layout: mla has one latent head, got num_kv_heads={self.num_kv_heads}")
        self._check_groups()

    def _check_groups(self) -> None:
        for group in self.groups:
            if group.kind not in SERVED_KINDS:
                raise LayoutError(
                    f"kv layout: group {group.name!r} is of kind {group.kind!r}, whose state cannot be rebuilt "
                    f"from a prefix's chunks; only {', '.join(sorted(SERVED_KINDS))} are cached, "
                    "so run this model without lmcache-core"
                )
            if (group.kind == "mla") != self.use_mla:
                raise LayoutError(
                    f"kv layout: group {group.name!r} is of kind {group.kind!r} but use_mla is {self.use_mla}"
                )
            if (group.kind == SLIDING_WINDOW) != (group.window_tokens > 0) or group.window_tokens < 0:
                raise LayoutError(
                    f"kv layout: group {group.name!r} is of kind {group.kind!r} with window_tokens="
                    f"{group.window_tokens}; a sliding window has at least 1, any other kind 0"
                )
        layers = sum(group.num_layers for group in self.groups)
        if self.groups and layers != self.num_layers:
            names = ", ".join(repr(group.name) for group in self.groups)
            raise LayoutError(
                f"kv layout: {layers} of {self.num_layers} layers are in a group ({names}); every layer must be in one"
            )

    @property
    def kv_size(self) -> int:
        """2 for K and V, 1 for MLA: first dimension of the KV tensor."""
        return 1 if self.use_mla else 2

    @property
    def hidden_size(self) -> int:
        """Elements of one token in one layer, K or V: last dimension of the KV tensor."""
        return self.num_kv_heads * self.head_size

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV that one token takes in all layers."""
        return self.kv_size * self.num_layers * self.hidden_size * DTYPE_BYTES[self.dtype]

    @property
    def fingerprint(self) -> str:
        """16 hex digits, different for every shape; part of each key."""
        shape: tuple[object, ...] = (self.num_layers, self.num_kv_heads, self.head_size, self.dtype, self.use_mla)
        shape += (self.format,) if self.format else ()
        if any(group.window_tokens for group in self.groups):  # what a layer attends to shapes what the next one keeps
            shape += tuple((group.num_layers, group.window_tokens) for group in self.groups)
        return hashlib.sha256(repr(shape).encode()).hexdigest()[:16]

    def kv_shape(self, tokens: int) -> tuple[int, int, int, int]:
        """Shape of the KV tensor of so many tokens: ``[kv, layers, tokens, hidden]``."""
        return (self.kv_size, self.num_layers, tokens, self.hidden_size)
