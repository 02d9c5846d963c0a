"""A pipeline's workers, which vLLM for CPUs cannot run: each has layers of its own, and their KV is found together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from tests.engines.pair import (
    BLOCK_TOKENS,
    BLOCKS,
    a_request,
    a_step,
    idle_step,
    kv_cache_config,
    the_blocks,
    vllm_config,
)
from tests.serve_process import ServeProcess
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from lmcache_plugins.vllm.connector import LMCoreConnector


class Pipeline:
    """A scheduler and a worker a stage.

    Args:
        stages: Names of the layers of each.
        extra: The connector's options.
    """

    def __init__(self, stages: list[tuple[str, ...]], extra: dict[str, Any]) -> None:
        self.workers, self.caches = [], []
        for rank, names in enumerate(stages):
            config, blocks = self._config(len(stages), rank, extra), kv_cache_config()
            blocks.kv_cache_groups[0].layer_names = list(names)
            layers = config.compilation_config.static_forward_context
            config.compilation_config.static_forward_context = dict.fromkeys(names, next(iter(layers.values())))
            self.caches.append({name: torch.randn(BLOCKS, 2, BLOCK_TOKENS, 32) for name in names})
            self.workers.append(LMCoreConnector(config, KVConnectorRole.WORKER, blocks))
            self.workers[-1].register_kv_caches(self.caches[-1])
        self.scheduler = LMCoreConnector(
            self._config(len(stages), 0, extra), KVConnectorRole.SCHEDULER, kv_cache_config()
        )
        cards = {(stage, 0): worker.get_handshake_metadata() for stage, worker in enumerate(self.workers)}
        self.scheduler.set_xfer_handshake_metadata_pp_aware(cards)

    def _config(self, stages: int, rank: int, extra: dict[str, Any]) -> Any:
        config = vllm_config(extra)
        config.parallel_config.pipeline_parallel_size = stages
        config.parallel_config.rank = rank
        return config

    def admit(self, request: Any, *blocks: int) -> int:
        found = None
        while found is None:
            found, _ = self.scheduler.get_num_new_matched_tokens(request, 0)
        self.scheduler.update_state_after_alloc(request, the_blocks(*blocks), found)
        return found

    def run(self, step: Any) -> set[int]:
        """Carry a step out in every worker; give the blocks that stayed empty."""
        metadata = self.scheduler.build_connector_meta(step)
        bad: set[int] = set()
        for worker in self.workers:
            worker.bind_connector_metadata(metadata)
            worker.start_load_kv(None)
            worker.wait_for_save()
            ended: set[str] = set()
            while not ended >= {order.request_id for order in metadata.plan.loads}:
                ended |= worker.get_finished(set())[1] or set()
            bad |= worker.get_block_ids_with_load_errors()
            worker.clear_connector_metadata()
        return bad

    def close(self) -> None:
        for side in (self.scheduler, *self.workers):
            side.shutdown()


@pytest.fixture(params=["in_process", "server"])
def pipeline_of(request: pytest.FixtureRequest, server: ServeProcess) -> Iterator[Any]:
    extra = {"lmcache.mode": request.param, "lmcache.chunk_size": 64, "lmcache.server_address": server.address}
    with ExitStack() as opened:

        def make(*stages: tuple[str, ...]) -> Pipeline:
            made = Pipeline(list(stages), extra)
            opened.callback(made.close)
            return made

        yield make


def test_blocks_of_every_stage_come_back_as_they_were(pipeline_of: Any) -> None:
    pipeline = pipeline_of(("layer.0", "layer.1"), ("layer.2", "layer.3"))
    before = [{name: cache[[1, 2]].clone() for name, cache in caches.items()} for caches in pipeline.caches]
    assert pipeline.admit(a_request(), 1, 2, 3, 4) == 0
    pipeline.run(a_step())
    pipeline.scheduler.request_finished(a_request(), [1, 2, 3, 4])
    for caches in pipeline.caches:
        for cache in caches.values():
            cache.zero_()
    assert pipeline.admit(a_request(request_id="again"), 7, 5, 6, 4) == 64
    assert pipeline.run(idle_step()) == set()
    for caches, whole in zip(pipeline.caches, before, strict=True):
        for name, cache in caches.items():
            assert torch.equal(cache[[7, 5]], whole[name])


def test_unequal_stages_are_a_no_op_that_says_why(pipeline_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = pipeline_of(("layer.0", "layer.1"), ("layer.2",))
    assert pipeline.admit(a_request(), 1, 2, 3, 4) == 0
    assert (
        "lmcache-core: nothing is cached, as vllm: the workers' kv layouts differ, as with a pipeline of unequal stages"
        in caplog.messages
    )
