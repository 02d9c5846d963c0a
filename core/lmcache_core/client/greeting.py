"""How a session begins: hello, lifeline, registration, all before one deadline."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from lmcache_core.access.format import ChunkFormat
from lmcache_core.client.answers import unexpected
from lmcache_core.client.failures import ServerConfusedError, ServerRefusedError
from lmcache_core.client.knock import Knock
from lmcache_core.client.lifeline import Lifeline, connect_lifeline
from lmcache_core.client.session import Session
from lmcache_core.client.shared_arena import SharedArena
from lmcache_core.client.sockets import SocketPool
from lmcache_core.client.wish import Wish
from lmcache_core.registry.plugin_set import PluginSet
from lmcache_core.version import __version__
from lmcache_core.wire.address import ServerAddress
from lmcache_core.wire.messages import (
    OLDEST_PROTOCOL,
    PRODUCT,
    PROTOCOL,
    Bye,
    Hello,
    RefusalCode,
    Registered,
    Welcome,
)

log = logging.getLogger(__name__)

_MOST_CHUNK_TOKENS = 1 << 20


class Greeter:
    """Opens sessions. One thread at a time.

    Args:
        address: Of the server.
        wish: What to register.
        name: Of this client, for the server's status.
        next_call: Gives numbers of calls.
    """

    def __init__(self, address: ServerAddress, wish: Wish, *, name: str, next_call: Callable[[], int]) -> None:
        self._place = address
        self._address = str(address)
        self._wish = wish
        self._name = name
        self._next_call = next_call
        self._format: ChunkFormat | None = None
        self._difference = ""

    def open(self, knock: Knock, deadline: float) -> Session:
        """Open a session. Raises a `ServerCallError`; then nothing is left over.

        Args:
            knock: Ends a wait when the server dies before its lifeline is connected.
            deadline: Monotonic seconds.
        """
        pool = SocketPool(self._address, lifeline=knock)
        try:
            welcome = self._say_hello(pool, deadline)
        finally:
            pool.close()
        lifeline, arena = _take_arena(welcome, self._lifeline_path(welcome), deadline)
        pool = SocketPool(self._address, session=welcome.session, lifeline=lifeline)
        try:
            registered, chunk_format = self._register(pool, welcome, deadline)
        except BaseException:
            pool.close(Bye(welcome.session))
            raise
        return Session(
            number=welcome.session,
            boot_id=welcome.boot_id,
            version=welcome.version,
            registration=registered.registration,
            chunk_format=chunk_format,
            arena=arena,
            lifeline=lifeline,
            pool=pool,
        )

    def _lifeline_path(self, welcome: Welcome) -> str:
        """Look beside the socket file: a pod may have mounted the folder elsewhere than the server has it."""
        if self._place.path is None or not welcome.lifeline:
            return welcome.lifeline
        return str(self._place.path.with_name(Path(welcome.lifeline).name))

    def _say_hello(self, pool: SocketPool, deadline: float) -> Welcome:
        call = self._next_call()
        own = self._wish.plugins
        hello = Hello(call, PRODUCT, __version__, OLDEST_PROTOCOL, PROTOCOL, (), self._name, os.getpid(), own.entries)
        answer = pool.call(hello, call, deadline)
        if not isinstance(answer, Welcome):
            raise unexpected(answer)
        if not OLDEST_PROTOCOL <= answer.protocol <= PROTOCOL:
            raise ServerRefusedError(
                RefusalCode.PROTOCOL,
                f"server {PRODUCT} {answer.version} chose protocol {answer.protocol}, client {PRODUCT} "
                f"{__version__} speaks {OLDEST_PROTOCOL} to {PROTOCOL}",
                answer.boot_id,
            )
        self._compare_plugins(PluginSet(answer.plugins))
        return answer

    def _compare_plugins(self, theirs: PluginSet) -> None:
        """Warn of a server whose plugins are others, once for each difference: stores and checks are the server's."""
        own = self._wish.plugins
        difference = own.difference(theirs, here="here", there="in the server")
        if difference and difference != self._difference:
            log.warning(
                "the cache server at %s has other plugins (%s) than this process (%s): %s; "
                "install the same packages for both",
                self._address,
                theirs.digest,
                own.digest,
                difference,
            )
        self._difference = difference

    def _register(self, pool: SocketPool, welcome: Welcome, deadline: float) -> tuple[Registered, ChunkFormat]:
        call = self._next_call()
        answer = pool.call(self._wish.message(call, welcome.session), call, deadline)
        if not isinstance(answer, Registered):
            raise unexpected(answer)
        if not 0 < answer.chunk_tokens <= _MOST_CHUNK_TOKENS or answer.chunk_tokens % self._wish.block_tokens:
            raise ServerRefusedError(
                RefusalCode.LAYOUT,
                f"the cache server cuts chunks of {answer.chunk_tokens} tokens, which are no whole blocks of "
                f"{self._wish.block_tokens}",
                welcome.boot_id,
            )
        chunk_format = self._format
        cut = (answer.chunk_tokens, answer.save_unfull_chunk)
        if chunk_format is None or (chunk_format.chunk_tokens, chunk_format.save_unfull_chunk) != cut:
            chunk_format = self._wish.format(answer.chunk_tokens, save_unfull_chunk=answer.save_unfull_chunk)
        if answer.frame_bytes != chunk_format.codec.frame_bytes:
            raise ServerRefusedError(
                RefusalCode.LAYOUT,
                f"the cache server ({welcome.version}) frames a chunk in {answer.frame_bytes} bytes, "
                f"this client ({__version__}) in {chunk_format.codec.frame_bytes}",
                welcome.boot_id,
            )
        self._format = chunk_format  # kept while it fits: chunks in the making stay valid over a restart
        return answer, chunk_format


def _take_arena(welcome: Welcome, path: str, deadline: float) -> tuple[Lifeline | None, SharedArena | None]:
    if not path:
        return None, None
    timeout_s = deadline - time.monotonic()
    lifeline, descriptor = connect_lifeline(path, welcome.ticket, timeout_s=timeout_s)
    if descriptor < 0:
        if welcome.arena_bytes:
            raise ServerConfusedError("the cache server's lifeline did not hand out the arena")
        return lifeline, None
    return lifeline, _map(descriptor, welcome.arena_bytes)


def _map(descriptor: int, arena_bytes: int) -> SharedArena:
    try:
        return SharedArena(descriptor, arena_bytes)
    except (OSError, ValueError, OverflowError) as error:
        raise ServerConfusedError(
            f"the cache server's arena of {arena_bytes} bytes cannot be mapped: {error}"
        ) from error
