"""Every error this project raises.

```text
LMCacheError
├── ConfigError               the user's: a key, variable, file or value; exit code 2
├── PluginError               the plugin's: did not load, or declared something wrong; exit code 3
│   └── PluginUnavailableError    its extra is not installed; carries the pip line that mends it
├── LayoutError               a KV layout that cannot be cached correctly, refused at registration
├── WireError                 bytes between a cache server and a client that are no message
├── OverrideError             an operator asked for an override that cannot be; exit code 2
├── BackendError              a store could not be asked, or refused; moves the health
│   ├── BackendTimeoutError       no answer before the deadline
│   └── BackendFullError          no room (disk full, Redis out of memory): writes only
└── IrrecoverableException    a health check gives up for ever
```

Messages say who, what, the value and what to do; lower case, no full stop, never a secret.
"""

from __future__ import annotations


class LMCacheError(Exception):
    """Root of the tree. `exit_code` is what ``lmcachectl`` ends with."""

    exit_code = 1


class ConfigError(LMCacheError):
    """Something the user configured is wrong.

    Args:
        problems: One sentence each, all offenders at once, at least one.
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PluginError(LMCacheError):
    """A plugin did not load or declared something wrong.

    Args:
        plugin: Entry-point name.
        origin: Distribution and version, such as ``acme-checks 2.0``.
        reason: What is wrong and what to do.
    """

    exit_code = 3

    def __init__(self, *, plugin: str, origin: str, reason: str) -> None:
        super().__init__(f"plugin {plugin!r} ({origin}): {reason}")
        self.plugin = plugin
        self.origin = origin
        self.reason = reason


class PluginUnavailableError(PluginError):
    """A plugin's optional dependency is not installed.

    Args:
        missing: The module that could not be imported.
        install: The line that mends it, such as ``pip install 'lmcache-core[redis]'``.
    """

    def __init__(self, *, plugin: str, origin: str, missing: str, install: str) -> None:
        super().__init__(plugin=plugin, origin=origin, reason=f"needs {missing!r}; run: {install}")
        self.missing = missing
        self.install = install


class LayoutError(LMCacheError, ValueError):
    """A KV layout or a tensor that cannot be cached correctly; nothing was stored."""

    exit_code = 2


class WireError(LMCacheError):
    """Bytes between a cache server and a client that are no message of the protocol."""


class OverrideError(LMCacheError):
    """An operator asked for an override that cannot be, or to end one that is not there.

    Args:
        sentence: What is wrong and what is due.
        missing: The backend or the override is not there.
    """

    exit_code = 2

    def __init__(self, sentence: str, *, missing: bool = False) -> None:
        super().__init__(sentence)
        self.missing = missing


class BackendError(LMCacheError):
    """A store could not be asked, or said no. Never raise it for a miss."""


class BackendTimeoutError(BackendError):
    """A store gave no answer before the deadline."""


class BackendFullError(BackendError):
    """A store has no room. It can still be read, so this degrades writes and nothing else."""


class IrrecoverableException(LMCacheError):  # noqa: N818 - the name LMCache's users know
    """Raised by a health check that can never pass again; the monitor ends and health stays down."""
