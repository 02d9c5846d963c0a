"""vLLM's door: `LMCoreConnector`. The only module that imports vLLM; the two sides do the work."""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import base as contract
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from lmcache_core import ConfigError, LayoutError, LMCacheError
from lmcache_plugins.vllm.border import Border
from lmcache_plugins.vllm.exposed import Exposed
from lmcache_plugins.vllm.facts import CacheFacts, cache_facts, check_block_bytes, machine_of, no_waiting, rank_facts
from lmcache_plugins.vllm.loads import Ended
from lmcache_plugins.vllm.opened import OpenedCache, OpenedLookups, open_cache, open_lookups
from lmcache_plugins.vllm.options import PREFIX, ConnectorOptions, read_options
from lmcache_plugins.vllm.paged import PagedAdapter
from lmcache_plugins.vllm.records import SaveOrder, StepPlan, WorkerCard
from lmcache_plugins.vllm.scheduler import Match, SchedulerSide
from lmcache_plugins.vllm.tally import Tally, merge
from lmcache_plugins.vllm.views import block_ids_of, scheduled_of, view_of
from lmcache_plugins.vllm.worker import WorkerSide

log = logging.getLogger(__name__)

_NOTHING = StepPlan()
_NO_MATCH: Match = (0, False)
_NO_SAVES: tuple[SaveOrder, ...] = ()
_UNKNOWN: Ended | None = None


@dataclass
class StepMetadata(KVConnectorMetadata):
    """A step's plan on its way to the workers."""

    plan: StepPlan = field(default_factory=StepPlan)


@dataclass
class CardMetadata(KVConnectorHandshakeMetadata):
    """A worker's card on its way to the scheduler."""

    card: WorkerCard


@dataclass
class ConnectorStats(KVConnectorStats):
    """Counts on their way to vLLM's log and metrics."""

    def reset(self) -> None:
        """Forget the counts."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Add another rank's or interval's."""
        return ConnectorStats(data=merge(self.data, other.data))

    def reduce(self) -> dict[str, int | float]:
        """Give the counts for vLLM's log."""
        return {f"lmcache {name}": round(count, 3) for name, count in self.data.items()}

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class ConnectorMetrics(KVConnectorPromMetrics):
    """The counts in vLLM's own ``/metrics``, as ``lmcache:connector_...``."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._exposed = Exposed(self._counter_cls, labelnames, per_engine_labelvalues)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add a report's counts."""
        self._exposed.add(transfer_stats_data, engine_idx)


class LMCoreConnector(KVConnectorBase_V1, SupportsHMA):
    """Lets vLLM store and load its KV through lmcache-core; see ``docs/how-to/use-with-vllm.md``.

    No hook raises: after a failure each gives the value that lets vLLM compute.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        side = "scheduler" if role is KVConnectorRole.SCHEDULER else "worker"
        self._tally = Tally()
        self._border = Border(side, self._tally)
        self._reason = ""
        self._options = self._read_options(vllm_config)
        self._card = WorkerCard(layout=None, reason=self._reason or "its kv cache has not been registered")
        self._cache: OpenedCache | None = None
        self._opened: OpenedLookups | None = None
        self._scheduler: SchedulerSide | None = None
        self._bad_blocks: set[int] = set()
        self._failed: set[str] = set()
        self._worker = WorkerSide(None, block_tokens=1, threaded=self._options.async_load, tally=self._tally)
        if role is KVConnectorRole.SCHEDULER:
            self._greet(transfer)
        atexit.register(self.shutdown)  # vLLM does not always end its parts

    # -- what vLLM asks of the class -------------------------------------------

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a chunk that is not kept is only a later miss."""
        return False

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        """Make counts from what vLLM has carried over."""
        return ConnectorStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any
    ) -> KVConnectorPromMetrics | None:
        """Put the counts into vLLM's own metrics."""
        return ConnectorMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # -- both sides ------------------------------------------------------------

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """Give what was counted since the last call; None for nothing."""
        counts = self._tally.take()
        return ConnectorStats(data=counts) if counts else None

    def shutdown(self) -> None:
        """Let go of the cache; chunks that wait to be written are, for at most ten seconds."""
        cache, self._cache = self._cache, None
        opened, self._opened = self._opened, None
        self._scheduler = None
        self._border.call("shutdown", self._worker.close, None)
        if cache is not None:
            self._border.call("shutdown", cache.close, None)
        if opened is not None:
            self._border.call("shutdown", opened.close, None)

    # -- the worker's side -----------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Build the cache for vLLM's tensors, or say why there is none."""
        if not self._reason:
            self._reason = "its start-up failed, see the log"
            self._border.call("register_kv_caches", lambda: self._register(kv_caches), None)
        if self._reason:
            self._card = WorkerCard(layout=None, reason=self._reason)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """Give the worker's card."""
        return CardMetadata(self._card)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Begin the step's loads."""
        del forward_context, kwargs
        side, plan = self._worker, self._plan()
        started = self._border.call("start_load_kv", lambda: side.start_loads(plan), False)  # noqa: FBT003 - the answer
        if not started:
            self._border.call("start_load_kv", lambda: side.refuse(plan), None)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: blocks are complete before vLLM computes on them."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Do nothing: chunks are copied once, when all layers of them are there."""

    def wait_for_save(self) -> None:
        """Keep the chunks that the step made full."""
        self._border.call("wait_for_save", lambda: self._worker.save(self._plan()), None)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Give the requests whose loads have ended; none is ever held back for a store."""
        del finished_req_ids
        side, plan = self._worker, self._plan()
        taken = self._border.call("get_finished", lambda: side.take_ended(plan), _UNKNOWN)
        ended = side.desk.take() if taken is None else taken  # what has ended must be told
        self._bad_blocks |= ended.bad_blocks
        if self._card.whole:
            self._failed |= ended.failed
        return None, (ended.done or None) if self._options.async_load else None

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        """Give the requests whose loads have ended; those of windowed models that fell short are computed whole."""
        _, received = self.get_finished(finished_req_ids)
        failed, self._failed = self._failed, set()
        return contract.KVConnectorTransferResults(finished_recving=received or set(), failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Give the blocks that vLLM must compute after all, of the loads that `get_finished` has told."""
        bad_blocks, self._bad_blocks = self._bad_blocks, set()
        return bad_blocks

    # -- the scheduler's side --------------------------------------------------

    def set_xfer_handshake_metadata(self, metadata: Mapping[Any, KVConnectorHandshakeMetadata]) -> None:
        """Take the workers' cards, and begin, unless one of them serves nothing."""
        self._border.call("set_xfer_handshake_metadata", lambda: self._begin(metadata.values()), None)

    def set_xfer_handshake_metadata_pp_aware(self, metadata: Mapping[Any, KVConnectorHandshakeMetadata]) -> None:
        """Take the workers' cards, of every stage of a pipeline too."""
        self.set_xfer_handshake_metadata(metadata)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Match:
        """Say how many further tokens can be loaded; None to be asked again."""
        side = self._scheduler
        if side is None:
            return 0, False
        return self._border.call(
            "get_num_new_matched_tokens", lambda: side.match(view_of(request), num_computed_tokens), _NO_MATCH
        )

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Order the load of what was matched."""
        side = self._scheduler
        if side is None:
            return
        # Not inside the border: blocks that cannot even be named could not be reported as empty.
        request_id, block_ids = request.request_id, block_ids_of(blocks)
        ordered = self._border.call(
            "update_state_after_alloc",
            lambda: side.allocated(request_id, block_ids, num_external_tokens),
            False,  # noqa: FBT003 - the answer itself
        )
        if not ordered and num_external_tokens:
            side.doom(request_id, block_ids)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Give the step's plan to the workers."""
        side = self._scheduler
        if side is None:
            return StepMetadata()
        side.forget(scheduler_output.finished_req_ids)
        saves = self._border.call("build_connector_meta", lambda: side.saves(scheduled_of(scheduler_output)), _NO_SAVES)
        return StepMetadata(StepPlan(side.take_loads(), saves, idle=not scheduler_output.num_scheduled_tokens))

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Forget a request; its blocks are vLLM's at once."""
        del block_ids
        side = self._scheduler
        if side is not None:
            self._border.call("request_finished", lambda: side.finished(request.request_id), None)
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Forget a request; its blocks are vLLM's at once."""
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def reset_cache(self) -> bool | None:
        """Drop what the cache holds, as after a change of weights; False where a tier could not."""
        side = self._scheduler
        return None if side is None else self._border.call("reset_cache", side.reset, False)  # noqa: FBT003 - the answer

    # -- inside ----------------------------------------------------------------

    def _plan(self) -> StepPlan:
        metadata = self._connector_metadata
        return metadata.plan if isinstance(metadata, StepMetadata) else _NOTHING

    def _read_options(self, vllm_config: Any) -> ConnectorOptions:
        transfer = vllm_config.kv_transfer_config
        try:
            options = read_options(
                transfer.kv_connector_extra_config, loads=transfer.is_kv_consumer, saves=transfer.is_kv_producer
            )
        except ConfigError as error:
            self._reason = str(error)
            log.error("lmcache-core: nothing is cached, as %s", error)  # noqa: TRY400 - the sentence says all
            return ConnectorOptions()
        cause = "" if options.async_load else no_waiting(vllm_config)
        if cause:
            log.warning("lmcache-core: %sasync_load is on, as vllm %s", PREFIX, cause)
            return replace(options, async_load=True)
        return options

    def _greet(self, transfer: Any) -> None:
        if transfer.kv_load_failure_policy != "recompute":
            log.warning(
                "lmcache-core: kv_load_failure_policy is %r, so vllm ends a request with an error when its kv "
                "cannot be loaded, as when a store goes away between lookup and load; set it to 'recompute'",
                transfer.kv_load_failure_policy,
            )
        if self._options.ignored:
            log.warning(
                "lmcache-core: kv_connector_extra_config has %s, which nobody reads; its keys begin with %r",
                ", ".join(self._options.ignored),
                PREFIX,
            )

    def _register(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        try:
            self._build(kv_caches)
        except LMCacheError as error:
            self._reason = str(error)
            log.error("lmcache-core: nothing is cached, as %s", error)  # noqa: TRY400 - the sentence says all
        else:
            self._reason = ""

    def _build(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        rank = rank_facts(self._vllm_config)
        machine = machine_of(kv_caches, torch.backends.cpu.get_cpu_capability())
        facts = cache_facts(self._vllm_config, self._kv_cache_config, kv_caches, machine)
        _check_whole_loads(facts, self._options)
        tensors = [kv_caches[name] for name in facts.layer_names]

        def make_adapter(chunk_tokens: int) -> PagedAdapter:
            return PagedAdapter(
                tensors,
                num_blocks=facts.num_blocks,
                block_tokens=facts.block_tokens,
                chunk_tokens=chunk_tokens,
                groups=facts.layout.groups,
            )

        check_block_bytes(facts, make_adapter(facts.block_tokens).block_bytes)
        self._cache = open_cache(self._options, facts, rank, make_adapter)
        self._worker = WorkerSide(
            self._cache.chunks,
            block_tokens=facts.block_tokens,
            threaded=self._options.async_load,
            tally=self._tally,
            whole=facts.whole,
        )
        self._card = WorkerCard(
            layout=facts.layout,
            model_name=rank.model_name,
            model_type=rank.model_type,
            rank=rank.rank,
            world_size=rank.world_size,
            block_tokens=facts.block_tokens,
            windows=facts.windows,
            blocks=facts.num_blocks,
            address=self._cache.address,
            plugins=self._cache.plugins,
        )
        place = "in this process" if self._cache.address else "in a server"
        log.info("lmcache-core: the cache is %s, the kv format is %s", place, facts.layout.format)

    def _begin(self, metadata: Iterable[KVConnectorHandshakeMetadata]) -> None:
        cards = [one.card for one in metadata if isinstance(one, CardMetadata)]
        reasons = {card.reason for card in cards if card.reason}
        if reasons or not cards:
            self._reason = "; ".join(sorted(reasons)) or "no worker said what it has"
            log.error("lmcache-core: nothing is cached, as %s", self._reason)
            return
        try:
            self._opened = open_lookups(self._options, cards)
        except LMCacheError as error:
            log.error("lmcache-core: nothing is cached, as %s", error)  # noqa: TRY400 - the sentence says all
            return
        self._scheduler = SchedulerSide(
            self._opened.lookups,
            block_tokens=cards[0].block_tokens,
            options=self._options,
            tally=self._tally,
            windows=cards[0].windows,
            blocks=min(card.blocks for card in cards),
        )


with contextlib.suppress(ValueError):  # known; MultiConnector finds its children's counts by name, or ends the engine
    KVConnectorFactory.register_connector(LMCoreConnector.__name__, __name__, LMCoreConnector.__name__)


def _check_whole_loads(facts: CacheFacts, options: ConnectorOptions) -> None:
    """Refuse to serve windowed layers, or several groups, where a load that falls short could not be undone.

    In a part of a windowed request the last tokens lack what they attend to: it must be computed from its first token
    on. Of several groups, vLLM cannot be told of single blocks.
    """
    if not facts.whole:
        return
    if not hasattr(KVConnectorBase_V1, "get_transfer_results"):
        raise LayoutError(
            "vllm: the model has sliding windows or several groups of layers, and this version of vllm cannot be told "
            "that a request's load failed; upgrade vllm"
        )
    if not options.async_load:
        raise LayoutError(
            f"vllm: the model has sliding windows or several groups of layers, whose loads can be undone only beside "
            f"the steps; set {PREFIX}async_load to true"
        )
