from lmcache_plugins.reuse.requests import RecentRequests

A, B, C, D = (letter * 32 for letter in (b"a", b"b", b"c", b"d"))


def test_a_first_lookup_is_new() -> None:
    assert RecentRequests().count_known("r1", [A, B], 0.0) == 0


def test_a_retry_is_known() -> None:
    requests = RecentRequests()
    requests.count_known("r1", [A, B], 0.0)
    assert [requests.count_known("r1", [A, B], now_s) for now_s in (1.0, 59.0, 118.0)] == [2, 2, 2]


def test_a_retry_with_more_tokens_is_known_up_to_where_it_was() -> None:
    requests = RecentRequests()
    requests.count_known("r1", [A, B], 0.0)
    assert requests.count_known("r1", [A, B, C], 1.0) == 2
    assert requests.count_known("r1", [A, B, C], 2.0) == 3


def test_a_retry_with_fewer_tokens_is_known() -> None:
    requests = RecentRequests()
    requests.count_known("r1", [A, B, C], 0.0)
    assert requests.count_known("r1", [A], 1.0) == 1
    assert requests.count_known("r1", [A, B, C], 2.0) == 3


def test_the_same_prompt_of_another_request_is_new() -> None:
    requests = RecentRequests()
    requests.count_known("r1", [A, B], 0.0)
    assert requests.count_known("r2", [A, B], 1.0) == 0


def test_another_prompt_under_the_same_id_is_new() -> None:
    requests = RecentRequests()
    requests.count_known("r1", [A, B], 0.0)
    assert requests.count_known("r1", [C, D], 1.0) == 0


def test_the_same_again_after_a_minute_is_new() -> None:
    requests = RecentRequests()
    requests.count_known("r1", [A], 0.0)
    assert requests.count_known("r1", [A], 61.0) == 0


def test_lookups_without_an_id_are_always_new() -> None:
    requests = RecentRequests()
    assert [requests.count_known("", [A], now_s) for now_s in (0.0, 1.0)] == [0, 0]


def test_only_the_last_lookups_are_remembered() -> None:
    requests = RecentRequests(kept=2)
    for name in ("r1", "r2", "r3"):
        requests.count_known(name, [A], 0.0)
    assert [requests.count_known(name, [A], 1.0) for name in ("r3", "r2", "r1")] == [1, 1, 0]
