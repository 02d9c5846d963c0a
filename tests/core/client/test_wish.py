"""What a client tells of its model."""

from __future__ import annotations

from lmcache_core.client.wish import Wish
from lmcache_core.contracts.layout import KVGroup, KVLayout
from lmcache_core.server.registration import kv_layout

NEAR = KVGroup(name="near", kind="sliding_window", num_layers=1, window_tokens=6)
FAR = KVGroup(name="far", kind="full", num_layers=1)


def layout(*groups: KVGroup) -> KVLayout:
    return KVLayout(num_layers=2, num_kv_heads=2, head_size=4, dtype="float32", groups=groups)


def test_a_server_reads_the_same_layout() -> None:
    hybrid = layout(NEAR, FAR)

    assert kv_layout(Wish(layout=hybrid, model_name="m").message(1, 2)) == hybrid


def test_no_windows_are_told_of_a_model_that_has_none() -> None:
    assert Wish(layout=layout(), model_name="m").message(1, 2).windows == ()
