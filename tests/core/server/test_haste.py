"""A client that gives no call any time costs the others nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.core.server.served import Served
from tests.core.server.talker import Talker

from lmcache_core.storage.breaker import BreakerState
from lmcache_core.wire import messages as wire


def test_a_client_in_haste_misses_and_the_others_hit(
    served: Served, worker: Talker, talk: Callable[[Served], Talker]
) -> None:
    worker.store("a", "b")
    assert served.rig.storage.flush(10)
    served.rig.local.clear()
    served.rig.stores[0].fault = lambda _call: time.sleep(0.05)
    hasty = talk(served).enter("hasty")
    found = [hasty.lookup(number, timeout_s=0.001) for number in range(40)]

    assert [one.chunks for one in found if isinstance(one, wire.Found)] == [0] * 40
    assert served.rig.storage.tiers[0].breaker.snapshot().state is BreakerState.CLOSED
    answer = worker.lookup("a", "b", request_id="r")
    assert isinstance(answer, wire.Found)
    assert answer.chunks == 2
    lent = worker.retrieve("a", "b", request_id="r")
    assert len(lent.offsets) == 2
