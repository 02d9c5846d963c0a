"""The tables of the configuration; field docstrings are the reference documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, create_model

from lmcache_core.config.address import StoreAddress
from lmcache_core.config.checks import CheckTable
from lmcache_core.config.policies import Policies
from lmcache_core.config.server_address import judge_server_address
from lmcache_core.config.table import Table
from lmcache_core.contracts.key import hash_salt
from lmcache_core.contracts.settings import PluginSettings
from lmcache_core.errors import PluginError

_FILE_SCHEME = "file://"
_LAST_PORT = 65535
_LONGEST_LABEL = 128


@dataclass(frozen=True, slots=True)
class TableOwner:
    """Who owns a table under ``[extra_config]``.

    Attributes:
        settings: The table's model.
        plugin: Entry-point name of the plugin that declared it.
        origin: Distribution and version, such as ``acme-checks 2.0``.
    """

    settings: type[PluginSettings]
    plugin: str
    origin: str


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _disk_path(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty; leave the key out for no disk tier")
    if "://" in text and not text.startswith(_FILE_SCHEME + "/"):
        raise ValueError("must be a path, or a file:// address with three slashes such as file:///var/cache/lmcache")
    return text


def _naive(text: str) -> str:
    if text != "naive":
        raise ValueError(
            f"{text!r} is not supported: chunks are kept as they are, so that answers stay exact; write 'naive' or "
            "leave the key out"
        )
    return text


class PluginsTable(Table):
    """Table ``[plugins]``: which plugins are loaded."""

    required: tuple[str, ...] = ()
    """Plugins without which start-up fails."""

    disabled: tuple[str, ...] = ()
    """Plugins that are not loaded."""

    third_party: bool = True
    """Whether plugins of other distributions are loaded."""

    load_timeout_secs: float = Field(default=10.0, gt=0)
    """Seconds that each call of such a plugin's code may take: importing it, a hook, building a store, making its
    checks; what takes longer is left out."""


class ExtraConfig(Table):
    """Table ``[extra_config]``: the health keys, and one table for each plugin that has settings."""

    ping_interval: float = Field(default=30.0, gt=0)
    """Seconds between two rounds of health checks."""

    ping_timeout: float = Field(default=5.0, gt=0)
    """Seconds that one ping may take; less than `ping_interval`."""

    get_blocking_failed_threshold: int = Field(default=10, ge=1)
    """Failed loads within one round from which on a remote counts as failed."""

    waiting_time_for_recovery: float = Field(default=300.0, gt=0)
    """Seconds after such a failure before a recovery is tried."""

    fallback_policy: Policies = "recompute"
    """What to do while a check fails: `recompute`, `local_cpu`, `bypass`, `read_only`, `write_only`, or a policy that
    a plugin brings; or a list of them, a ladder: the next one takes over when the failure lasts, or at once when the
    one before does not help."""

    policy_ladder_secs: float = Field(default=30.0, gt=0)
    """Seconds that one policy of a ladder may last before the next one takes over."""

    checks: tuple[CheckTable, ...] = ()
    """How single health checks are run and answered; `[[extra_config.checks]]`."""

    call_timeout_secs: float | None = Field(default=None, gt=0)
    """Seconds that one call to a store may take; left out, `blocking_timeout_secs`."""

    slow_call_secs: float | None = Field(default=None, gt=0)
    """A call that takes longer counts as bad for the breaker; left out, half of what a call may take."""

    breaker_failures: int = Field(default=3, ge=1)
    """Failed calls in a row that open a store's breaker; a call that times out opens it at once."""

    breaker_window_secs: float = Field(default=10.0, gt=0)
    """Seconds that the breaker looks back; half of the calls failed or slow opens it, from ten calls on."""

    breaker_open_secs: float = Field(default=1.0, gt=0)
    """Seconds from the opening to the first trial call; doubles with each failed trial."""

    breaker_max_open_secs: float = Field(default=60.0, gt=0)
    """Most seconds between two trials."""

    breaker_trials: int = Field(default=2, ge=1)
    """Trial calls, one at a time, that must pass before traffic returns."""

    breaker_ramp_secs: float = Field(default=5.0, gt=0)
    """Seconds from a tenth of the traffic to all of it."""

    def table(self, name: str) -> PluginSettings | None:
        """Give a plugin's validated table; None where the configuration has none."""
        value = getattr(self, f"table_{name}", None)
        return value if isinstance(value, PluginSettings) else None


class RemoteTable(Table):
    """One ``[[remotes]]`` entry: a further store."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$", max_length=63)
    """Names the store in metrics, logs and commands: letters, digits, `_`, `.` and `-`; unique."""

    url: StoreAddress
    """Where the store is, such as `redis://cache-1:6379`."""

    extra_config: ExtraConfig = Field(default_factory=ExtraConfig)
    """Keys of this store that override the global `[extra_config]`, leaf by leaf."""


class TenantTable(Table):
    """One ``[[tenants]]`` entry: a tenant with a quota and a label of its own."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$", max_length=63)
    """Stands for the tenant in metrics and status: letters, digits, `_`, `.` and `-`; unique. `default` stands for
    requests without a salt; `other` is taken."""

    salt: SecretStr | None = Field(default=None, min_length=1)
    """The salt that its requests bring. A secret: give it here, or its hash in `salt_hash`."""

    salt_hash: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    """The salt's hash, 32 hex digits, so that the salt itself need not be written down."""

    quota_gib: float = Field(default=0.0, ge=0)
    """GiB of CPU memory that its chunks may take; 0 for no bound."""

    @property
    def known_hash(self) -> str:
        """The salt's hash, whichever was given; ``""`` for requests without a salt."""
        return self.salt_hash or hash_salt(self.salt.get_secret_value() if self.salt else "")


class CoreConfig(Table):
    """The whole configuration."""

    chunk_size: int = Field(default=256, ge=1)
    """Tokens in one chunk, the unit of storage."""

    save_unfull_chunk: bool = False
    """Whether the rest of a sequence that fills no chunk is kept as one too, so that the same prompt is found whole. It
    takes the memory of a full chunk, and only a prompt that ends with just these tokens finds it."""

    local_cpu: bool = True
    """Whether chunks are kept in CPU memory."""

    max_local_cpu_size: float = Field(default=5.0, ge=0)
    """GiB of CPU memory, above 0. With `local_cpu = false` it is the memory that other stores load through. A server
    takes it whole at the start, an engine as chunks need it, 512 MiB ahead."""

    tenant_quota_gib: float = Field(default=0.0, ge=0)
    """GiB of that memory that the chunks of one tenant, a salt, may take where `[[tenants]]` does not name it; 0 for no
    bound. Requests without a salt are one tenant."""

    local_disk: Annotated[str, AfterValidator(_disk_path)] | None = None
    """Directory of the disk tier, a path or a `file://` address. Needs `max_local_disk_size`."""

    max_local_disk_size: float = Field(default=0.0, ge=0)
    """GiB that the disk tier may take. Needs `local_disk`."""

    local_disk_fsync: bool = False
    """Whether each chunk of the disk tier is forced to the disk before it counts as stored; several times slower."""

    remote_url: StoreAddress | None = None
    """Where the remote store is, such as `redis://cache-1:6379` or `file:///mnt/shared/kv`."""

    remote_serde: Annotated[str, AfterValidator(_naive)] = "naive"
    """How chunks are written to the remote; only `naive`, byte for byte."""

    blocking_timeout_secs: float = Field(default=10.0, gt=0)
    """Seconds that one call to a store may keep a request waiting."""

    pin_timeout_sec: float = Field(default=300.0, gt=0)
    """Seconds after which the lease on a chunk that was promised and never fetched expires."""

    write_behind_chunks: int = Field(default=128, ge=1)
    """Chunks that may wait to be written to one store; more are shed and counted."""

    backend_connections: int = Field(default=4, ge=1, le=256)
    """Calls made to one store at once."""

    lmcache_instance_id: str | None = Field(default=None, min_length=1, max_length=_LONGEST_LABEL)
    """Name of this instance in metrics and reports."""

    mode: Literal["in_process", "server"] = "in_process"
    """Where an engine's workers cache: `in_process`, each in its own memory, or `server`, all of a host in the memory
    of one `lmcachectl serve`."""

    server_address: Annotated[str, AfterValidator(judge_server_address)] | None = None
    """Where that server is, such as `ipc:///run/lmcache-core/server.sock` or `tcp://127.0.0.1:7800`; left out, a
    socket in the user's runtime directory."""

    server_drain_secs: float = Field(default=10.0, ge=0)
    """Seconds that a server which is told to end may go on writing what waits to be written."""

    internal_api_server_enabled: bool = False
    """Whether health, metrics and status are served over HTTP."""

    internal_api_server_host: str = Field(default="127.0.0.1", min_length=1)
    """Address that HTTP server listens on."""

    internal_api_server_port_start: int = Field(default=6999, ge=0, le=_LAST_PORT)
    """Its port; rank `n` takes this plus `n`. 0 takes any free port."""

    internal_api_server_token: SecretStr | None = Field(default=None, min_length=16)
    """What a client must send to change anything over HTTP, at least 16 characters. Reading needs none."""

    readiness: Literal["started", "healthy"] = "started"
    """What `/readyz` asks for: `started`, the first round of checks is over, or `healthy`, the cache serves."""

    internal_grpc_port: int | None = Field(default=None, ge=0, le=_LAST_PORT)
    """Port of the gRPC health service, on the same address; rank `n` takes this plus `n`. 0 takes any free port."""

    health_state_dir: str | None = Field(default=None, min_length=1)
    """Folder in which operators' overrides and their audit log outlive the process; left out, overrides end with it."""

    health_audit_file: str | None = Field(default=None, min_length=1)
    """File of JSON lines that says who overrode what, why and until when; left out, it is in `health_state_dir`."""

    health_history_file: str | None = Field(default=None, min_length=1)
    """File of JSON lines that takes each change of health; left out, only the last 1000 are kept, in memory."""

    log_level: Annotated[Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"], BeforeValidator(_upper)] = "INFO"
    """Least severe message that is logged; upper or lower case."""

    log_format: Literal["text", "json"] = "text"
    """How `lmcachectl serve` writes its log: `text`, a line for people, or `json`, one object a line."""

    plugins: PluginsTable = PluginsTable()
    """Which plugins are loaded."""

    extra_config: ExtraConfig = ExtraConfig()
    """Health keys, and one table for each plugin that has settings."""

    tenants: tuple[TenantTable, ...] = ()
    """Tenants with a quota and a label of their own; `[[tenants]]`."""

    remotes: tuple[RemoteTable, ...] = ()
    """Further stores, asked after `remote_url` in this order."""

    @property
    def local_disk_path(self) -> Path | None:
        """Directory of the disk tier, `~` expanded; None where there is no disk tier."""
        if self.local_disk is None:
            return None
        text = self.local_disk
        if text.startswith(_FILE_SCHEME):
            text = unquote(text[len(_FILE_SCHEME) :])
        return Path(text).expanduser()

    def all_remotes(self) -> tuple[RemoteTable, ...]:
        """Give every remote store in its order; that of `remote_url` comes first and has the name ``""``."""
        if self.remote_url is None:
            return self.remotes
        first = RemoteTable.model_construct(name="", url=self.remote_url, extra_config=self.extra_config)
        return (first, *self.remotes)


def build_model(owners: Sequence[TableOwner]) -> type[CoreConfig]:
    """Make the model that has every plugin's table.

    Raises:
        PluginError: A table has the name of one of the core's own keys.
    """
    tables: dict[str, Any] = {}
    for owner in owners:
        name = owner.settings.table
        if name in ExtraConfig.model_fields:
            reason = f"table {name!r} has the name of a key of [extra_config]; rename it"
            raise PluginError(plugin=owner.plugin, origin=owner.origin, reason=reason)
        summary = (owner.settings.__doc__ or "").strip().partition("\n")[0]
        field = Field(default=None, alias=name, description=f"Of plugin {owner.plugin!r}. {summary}".strip())
        tables[f"table_{name}"] = (owner.settings | None, field)
    extra = create_model("ExtraConfig", __base__=ExtraConfig, **tables)
    remote = create_model(
        "RemoteTable",
        __base__=RemoteTable,
        extra_config=(extra, _redefault(RemoteTable, "extra_config", extra())),
    )
    return create_model(
        "CoreConfig",
        __base__=CoreConfig,
        extra_config=(extra, _redefault(CoreConfig, "extra_config", extra())),
        remotes=(tuple[remote, ...], _redefault(CoreConfig, "remotes", ())),
    )


def _redefault(model: type[BaseModel], name: str, default: object) -> Any:
    return Field(default=default, description=model.model_fields[name].description)
