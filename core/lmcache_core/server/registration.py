"""What clients said they will store, shared by those who said the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import error as StructError  # noqa: N812 - an exception by its name
from struct import unpack

import msgspec

from lmcache_core.access.format import ChunkFormat
from lmcache_core.access.local import LocalAccess
from lmcache_core.contracts.key import KeyNamespace
from lmcache_core.contracts.layout import SERVED_KINDS, KVGroup, KVLayout
from lmcache_core.errors import LayoutError
from lmcache_core.server.refusal import RefusedCallError
from lmcache_core.storage.run import ChunkRun
from lmcache_core.wire.messages import DIGEST_BYTES, RefusalCode, Register

_MOST_NAME = 512
_MOST_PARTS = 1024
_HASH = re.compile(r"[0-9a-f]{32}")
_ONE_DIGEST = f"{DIGEST_BYTES}s"


@dataclass(slots=True)
class Registration:
    """One model's KV, as one or several clients registered it. For the control thread alone.

    Attributes:
        number: By which clients name it.
        wish: The first client's message, without its call and session.
        access: The tiers, seen with this model's chunks.
        format: Of these chunks.
        users: Sessions that hold it.
    """

    number: int
    wish: Register
    access: LocalAccess
    format: ChunkFormat
    users: int = 0

    def runs(self, salt_hash: str, variant_hash: str, digests: Sequence[bytes], rest_tokens: int = 0) -> list[ChunkRun]:
        """Give the chunks of a lookup, one run a rank.

        Raises:
            RefusedCallError: The digests are not those of this registration's ranks, or the rest is no rest.
        """
        names = self.format.namespaces(_checked(salt_hash), _checked(variant_hash))
        if len(digests) != len(names):
            raise RefusedCallError(
                RefusalCode.MALFORMED, f"digests of {len(digests)} ranks came, and {len(names)} are registered"
            )
        codec = self.format.codec
        self._check_rest(rest_tokens)
        return [ChunkRun(name, _split(raw), codec, rest_tokens) for name, raw in zip(names, digests, strict=True)]

    def run(self, salt_hash: str, variant_hash: str, digests: bytes, rest_tokens: int) -> ChunkRun:
        """Give the chunks of the client's own rank; see `runs`."""
        name = self.format.namespaces(_checked(salt_hash), _checked(variant_hash))[0]
        self._check_rest(rest_tokens)
        return ChunkRun(name, _split(digests), self.format.codec, rest_tokens)

    def _check_rest(self, rest_tokens: int) -> None:
        if not 0 <= rest_tokens < self.format.chunk_tokens:
            raise RefusedCallError(
                RefusalCode.MALFORMED,
                f"rest_tokens is {rest_tokens} in chunks of {self.format.chunk_tokens} tokens",
            )


class RegistrationBook:
    """Counts who uses which registration. For the control thread alone.

    Args:
        open_format: Makes the access for a layout and the message it came in; raises LayoutError.
        on_registered: Told namespace, layout and model type of the first registration of a model and world
            size; told again only when nobody has held one in between.
    """

    def __init__(
        self,
        open_format: Callable[[KVLayout, Register], LocalAccess],
        on_registered: Callable[[KeyNamespace, KVLayout, str], None],
    ) -> None:
        self._open = open_format
        self._on_registered = on_registered
        self._by_wish: dict[Register, Registration] = {}
        self._models: Counter[tuple[str, int]] = Counter()
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_wish)

    def enter(self, message: Register) -> Registration:
        """Hold the registration that a message asks for.

        Raises:
            RefusedCallError: The layout cannot be cached correctly, or the message makes no sense.
        """
        wish = msgspec.structs.replace(message, call=0, session=0)
        found = self._by_wish.get(wish)
        if found is None:
            found = self._open_new(wish)
        found.users += 1
        model = (wish.model_name, wish.world_size)
        self._models[model] += 1
        if self._models[model] == 1:
            self._on_registered(found.format.namespaces("", "")[0], kv_layout(wish), wish.model_type)
        return found

    def _open_new(self, wish: Register) -> Registration:
        _check(wish)
        try:
            access = self._open(kv_layout(wish), wish)
        except LayoutError as error:
            raise RefusedCallError(RefusalCode.LAYOUT, str(error)) from error
        except StructError as error:  # its frame's header has no room for such numbers
            raise RefusedCallError(
                RefusalCode.LAYOUT, "register: one chunk of this layout has more bytes than there can be"
            ) from error
        self._last += 1
        found = self._by_wish[wish] = Registration(self._last, wish, access, access.format)
        return found

    def leave(self, registration: Registration) -> None:
        """Let go of it; the last one to do so ends it."""
        registration.users -= 1
        wish = registration.wish
        model = (wish.model_name, wish.world_size)
        self._models[model] -= 1
        if not self._models[model]:
            del self._models[model]
        if not registration.users:
            del self._by_wish[wish]


def kv_layout(wish: Register) -> KVLayout:
    """Read the layout of a message.

    Raises:
        LayoutError: It cannot be cached correctly.
    """
    for place, kind in enumerate(wish.group_kinds):
        if kind not in SERVED_KINDS:
            raise LayoutError(
                f"kv layout: group {place} is of kind {kind!r}, whose state cannot be rebuilt from a prefix's chunks; "
                f"only {', '.join(sorted(SERVED_KINDS))} are cached, so run this model without lmcache-core"
            )
    told = wish.layout
    windows = wish.windows if any(wish.windows) else (0,) * len(told.groups)
    if len(windows) != len(told.groups):
        raise LayoutError(
            f"kv layout: {len(windows)} windows are told of {len(told.groups)} groups; tell one of each group"
        )
    return KVLayout(
        num_layers=told.num_layers,
        num_kv_heads=told.num_kv_heads,
        head_size=told.head_size,
        dtype=told.dtype,
        use_mla=told.use_mla,
        format=told.format,
        groups=tuple(
            KVGroup(name=name, kind=kind, num_layers=layers, window_tokens=window)
            for (name, kind, layers), window in zip(told.groups, windows, strict=True)
        ),
    )


def _check(wish: Register) -> None:
    parts = (wish.ranks, wish.windows, wish.group_kinds, wish.layout.groups)
    if max(len(wish.model_name), len(wish.model_type)) > _MOST_NAME or max(map(len, parts)) > _MOST_PARTS:
        raise RefusedCallError(RefusalCode.LAYOUT, "register: a name or list is too long")
    ranks = wish.ranks
    if not ranks or len(set(ranks)) < len(ranks) or not all(0 <= rank < wish.world_size for rank in ranks):
        raise RefusedCallError(
            RefusalCode.LAYOUT, f"register: ranks {list(ranks[:8])} are not different ranks of {wish.world_size}"
        )
    if wish.block_tokens < 1:
        raise RefusedCallError(
            RefusalCode.LAYOUT, f"register: block_tokens must be a whole number of at least 1, got {wish.block_tokens}"
        )


def _checked(salt_hash: str) -> str:
    if salt_hash and _HASH.fullmatch(salt_hash) is None:
        raise RefusedCallError(RefusalCode.MALFORMED, "a salt's or variant's hash must be 32 hex digits or nothing")
    return salt_hash


def _split(digests: bytes) -> tuple[bytes, ...]:
    count, rest = divmod(len(digests), DIGEST_BYTES)
    if rest:
        raise RefusedCallError(
            RefusalCode.MALFORMED, f"{len(digests)} bytes of digests are no multiple of {DIGEST_BYTES}"
        )
    return unpack(_ONE_DIGEST * count, digests)
