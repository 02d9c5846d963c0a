"""One value of a round trip through a connector of LMCache, in memory that is LMCache's."""

from __future__ import annotations

import struct
import threading
from typing import Any

from lmcache_core import BackendError, Frame, LoadResult

_LENGTH = struct.Struct("<Q")


def unwrapped(connection: Any) -> Any:
    """Give the connector itself, without what LMCache puts around it to count and to audit."""
    connector = connection.getWrappedConnector()
    return getattr(connector, "real_connector", connector)


class ProbeValue:
    """Holds a chunk's memory from its allocation until neither side needs it any more.

    The coroutines run on LMCache's event loop; everything else on the caller's thread.

    Args:
        backend: LMCache's remote backend.
        connection: Its connector.
    """

    def __init__(self, backend: Any, connection: Any) -> None:
        self._backend = backend
        self._connection = connection
        self._lock = threading.Lock()
        self._value: Any = None
        self._given_up = False

    def fill(self, frame: Frame) -> None:
        """Take a chunk's memory and write a frame to its head.

        Raises:
            BackendError: No memory, or less in a chunk than the frame needs.
        """
        wrapped = unwrapped(self._connection)
        self._value = self._backend.local_cpu_backend.allocate(
            wrapped.meta_shapes, wrapped.meta_dtypes, wrapped.meta_fmt, busy_loop=False
        )
        if self._value is None:
            raise BackendError("lmcache has no memory left for a probe")
        self._value.raw_data.zero_()
        view = memoryview(self._value.byte_array).cast("B")
        if len(view) < _LENGTH.size + len(frame):
            raise BackendError(f"a chunk of lmcache has {len(view)} bytes, too few for a probe of {len(frame)}")
        view[: _LENGTH.size] = _LENGTH.pack(len(frame))
        view[_LENGTH.size : _LENGTH.size + len(frame)] = frame

    async def put(self, key: Any) -> None:
        """Hand the value to the connector, which lets go of it itself."""
        with self._lock:
            value, self._value = self._value, None
        if value is not None:
            await self._connection.put(key, value)

    async def get(self, key: Any) -> bool:
        """Take what the connector gives; False for nothing."""
        value = await self._connection.get(key)
        with self._lock:
            if not self._given_up:
                self._value = value
                return value is not None
        if value is not None:
            value.ref_count_down()
        return False

    def read(self, out: memoryview) -> LoadResult:
        """Copy the frame out of the value."""
        view = memoryview(self._value.byte_array).cast("B")
        if len(view) < _LENGTH.size + len(out) or _LENGTH.unpack(view[: _LENGTH.size]) != (len(out),):
            return LoadResult.CORRUPT
        out[:] = view[_LENGTH.size : _LENGTH.size + len(out)]
        return LoadResult.HIT

    def let_go(self) -> None:
        """Give the memory back; a coroutine that comes later finds nothing, and keeps nothing."""
        with self._lock:
            self._given_up = True
            value, self._value = self._value, None
        if value is not None:
            value.ref_count_down()
