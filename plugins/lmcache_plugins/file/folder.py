"""The folder of one store: its layout, its marker file, and whether it is still the same folder.

```text
<root>/.lmcache-store            marker: kind and format of the store
<root>/.tmp/<hex>.<pid>.<random> frames being written
<root>/<namespace>/<2 hex>/<64 hex>.kv
```

A store whose file system is unmounted leaves an empty folder behind. Filling that one would hide the
loss and fill the wrong disk; hence the marker. The folder is made once, at the first call of a
process; from then on its absence is an error.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator

from lmcache_core import BackendError, ChunkKey, Frame
from lmcache_plugins.file.chunkfile import failure, sync_folder, write_temporary

MARKER = ".lmcache-store"
TEMPORARIES = ".tmp"
SUFFIX = ".kv"
_SWEEP_LIMIT = 10_000  # files looked at in one sweep, so that it stays bounded
_MARKER_BYTES = 256


class StoreFolder:
    """Makes, watches and lays out one store's folder. Threads may share it; makes no call when built.

    Args:
        root: Absolute path.
        name: Of the tier; for messages.
        kind: ``file`` or ``disk``; a folder of one kind is refused by the other.
        private: Whether other users of the host are kept out.
    """

    def __init__(self, root: str, *, name: str, kind: str, private: bool) -> None:
        self.root = root
        self.marker = f"{root}/{MARKER}"
        self.file_mode = 0o600 if private else 0o666
        self._folder_mode = 0o700 if private else 0o777
        self._name = name
        self.title = f"lmcache-core {kind} store 1\n".encode()
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._device = -1
        self.generation = 0
        """Raised each time the folder is opened; what was known of its content is void then."""

    def check(self) -> None:
        """See that the folder is there and is still the one that was opened; open it first if need be.

        Raises:
            BackendError: It is gone, replaced, of another kind, or may not be used.
        """
        if self._identity is not None and self._identity == self._read_identity():
            return
        with self._lock:
            try:
                self._open()
            except OSError as error:
                raise failure(error, name=self._name, doing="opening the folder", path=self.root) from error

    def ask(self) -> None:
        """Read the marker, so that the file system itself must answer and not its cache of names.

        Raises:
            BackendError: It does not.
        """
        self.check()
        try:
            self._read_marker()
        except OSError as error:
            raise failure(error, name=self._name, doing="reading", path=self.marker) from error

    def path(self, key: ChunkKey) -> str:
        """Where a chunk's file is."""
        return self.path_of(key.namespace.name, key.digest.hex())

    def path_of(self, namespace: str, digest: str) -> str:
        """Where the file of a digest, in hex, is."""
        return f"{self.root}/{namespace}/{digest[:2]}/{digest}{SUFFIX}"

    def publish(self, key: ChunkKey, frame: Frame, *, fsync: bool, deadline: float) -> None:
        """Write a chunk's file beside and rename it to its place; a failure leaves nothing behind.

        Raises:
            BackendError: The root is gone.
            BackendTimeoutError: The deadline passed.
            OSError: It could not be written.
        """
        temporary = f"{self.root}/{TEMPORARIES}/{key.digest.hex()}.{os.getpid()}.{secrets.token_hex(8)}"
        try:
            self._write(temporary, frame, fsync=fsync, deadline=deadline)
        except FileNotFoundError:
            self.make_parent(key)
            self._write(temporary, frame, fsync=fsync, deadline=deadline)
        path = self.path(key)
        try:
            try:
                os.replace(temporary, path)
            except FileNotFoundError:
                self.make_parent(key)
                os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if fsync:
            sync_folder(os.path.dirname(path))

    def _write(self, temporary: str, frame: Frame, *, fsync: bool, deadline: float) -> None:
        write_temporary(temporary, frame, name=self._name, mode=self.file_mode, fsync=fsync, deadline=deadline)

    def make_parent(self, key: ChunkKey) -> str:
        """Make the folder that a chunk's file is in, but never the root.

        Raises:
            BackendError: The root is gone.
            OSError: It could not be made.
        """
        self.check()
        namespace = f"{self.root}/{key.namespace.name}"
        parent = f"{namespace}/{key.digest.hex()[:2]}"
        for path in (f"{self.root}/{TEMPORARIES}", namespace, parent):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, self._folder_mode)
        return parent

    def sweep(self, *, age_s: float, deadline: float) -> int:
        """Remove what writers that died have left; give how many files.

        Looks at 10,000 files at most. A live writer's file is younger than `age_s`.
        """
        limit = time.time() - age_s
        removed = 0
        with contextlib.suppress(OSError), os.scandir(f"{self.root}/{TEMPORARIES}") as entries:
            for count, entry in enumerate(entries):
                if count >= _SWEEP_LIMIT or time.monotonic() >= deadline:
                    break
                with contextlib.suppress(OSError):  # its writer, or another sweeper, was faster
                    if entry.stat(follow_symlinks=False).st_mtime <= limit:
                        os.unlink(entry.path)
                        removed += 1
        return removed

    def scan(self) -> Iterator[tuple[str, str, int, float]]:
        """Find all chunk files: namespace, digest in hex, bytes, seconds since 1970 of the last change.

        Raises:
            OSError: A folder could not be read.
        """
        for namespace in self._names(self.root):
            for shelf in self._names(f"{self.root}/{namespace}"):
                with os.scandir(f"{self.root}/{namespace}/{shelf}") as entries:
                    for entry in entries:
                        digest, dot, suffix = entry.name.partition(".")
                        if (
                            dot + suffix == SUFFIX
                            and _is_digest(digest, shelf)
                            and entry.is_file(follow_symlinks=False)
                        ):
                            found = entry.stat(follow_symlinks=False)
                            yield namespace, digest, found.st_size, found.st_mtime

    @staticmethod
    def _names(path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)]

    def _read_identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.marker)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open(self) -> None:
        opened_before = self._identity is not None
        if not opened_before:
            self._make_root()
        elif not os.path.isdir(self.root):
            raise BackendError(f"{self._name}: the folder {self.root} is gone; mount or create it again")
        device = os.stat(self.root).st_dev
        if not os.path.exists(self.marker):
            if opened_before and device != self._device:
                raise BackendError(
                    f"{self._name}: another file system is mounted at {self.root} than before, without {MARKER}; "
                    "mount the right one, or restart to use this one"
                )
            self._write_marker()
        self._read_marker()
        with contextlib.suppress(OSError):  # a reader may have no right to write; a writer will be told then
            os.mkdir(f"{self.root}/{TEMPORARIES}", self._folder_mode)
        identity = self._read_identity()
        if identity != self._identity:
            self.generation += 1
        self._device, self._identity = device, identity

    def _make_root(self) -> None:
        try:
            os.mkdir(self.root, self._folder_mode)
        except FileNotFoundError:
            parent = os.path.dirname(self.root)
            raise BackendError(
                f"{self._name}: cannot make the folder {self.root}, as {parent} does not exist; create or mount it"
            ) from None
        except FileExistsError:
            if not os.path.isdir(self.root):
                raise BackendError(f"{self._name}: {self.root} is no folder; name a folder") from None
        except OSError:
            # A mount point under a read-only parent answers so although it exists.
            if not os.path.isdir(self.root):
                raise

    def _write_marker(self) -> None:
        with contextlib.suppress(FileExistsError):  # another process was faster
            handle = os.open(self.marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.file_mode)
            try:
                os.write(handle, self.title)
            finally:
                os.close(handle)

    def _read_marker(self) -> None:
        handle = os.open(self.marker, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            title = os.read(handle, _MARKER_BYTES).split(b"\n")[0] + b"\n"
        finally:
            os.close(handle)
        if title not in (b"\n", self.title):  # empty: its maker is about to write it
            shown = title.decode(errors="replace").strip()
            raise BackendError(
                f"{self._name}: {self.root} is a folder of {shown!r}, not of {self.title.decode().strip()!r}; "
                "give each store a folder of its own"
            )


def _is_digest(text: str, shelf: str) -> bool:
    return len(text) == 64 and text[:2] == shelf and all(letter in "0123456789abcdef" for letter in text)  # noqa: PLR2004 - SHA-256 in hex
