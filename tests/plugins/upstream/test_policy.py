import pytest

from lmcache_plugins.upstream.policy import translate

BACKENDS = ("LocalCPUBackend", "RemoteBackend")


@pytest.mark.parametrize(
    ("ladder", "backend", "chosen"),
    [
        (("recompute",), None, ("recompute", "")),
        (("local_cpu",), "RemoteBackend", ("local_cpu", "")),
        (("bypass",), "RemoteBackend", ("recompute", "lmcache has no policy 'bypass'")),
        (("read_only", "local_cpu"), "RemoteBackend", ("local_cpu", "lmcache has no policy 'read_only'")),
        (("read_only", "recompute"), "RemoteBackend", ("recompute", "lmcache has no policy 'read_only'")),
        (
            ("local_cpu",),
            None,
            ("recompute", "'local_cpu' needs a backend to leave out, and lmcache has none called None"),
        ),
        (
            ("local_cpu",),
            "Elsewhere",
            ("recompute", "'local_cpu' needs a backend to leave out, and lmcache has none called 'Elsewhere'"),
        ),
    ],
)
def test_policy_in_lmcaches_words(ladder, backend, chosen) -> None:
    assert translate(ladder, backend, BACKENDS) == chosen
