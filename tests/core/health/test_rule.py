from dataclasses import replace

from lmcache_core.health.rule import describe_rule
from lmcache_core.health.terms import CheckTerms

TERMS = CheckTerms(interval_s=30.0, timeout_s=5.0, ladder=("recompute",), fast_interval_s=6.0)


def test_it_says_how_a_check_is_run_judged_and_answered() -> None:
    assert describe_rule(TERMS) == (
        "fails after one failing run, passes after one passing run; runs every 30 s, every 6 s while it fails; has 5 s "
        "to answer; while it fails: policy recompute"
    )


def test_rise_and_fall_are_told() -> None:
    assert describe_rule(replace(TERMS, rise=2, fall=3)).startswith(
        "fails after 3 failing runs in a row, passes after 2 passing runs in a row; "
    )


def test_a_ladder_is_told_in_its_order() -> None:
    assert describe_rule(replace(TERMS, ladder=("read_only", "local_cpu"), ladder_s=20.0)).endswith(
        "; while it fails: policy read_only, after 20 s more local_cpu"
    )


def test_a_check_that_is_only_observed_stops_nothing() -> None:
    assert describe_rule(replace(TERMS, enforce=False)).endswith("; is only observed: a failure stops nothing")


def test_what_it_depends_on_is_told() -> None:
    assert describe_rule(replace(TERMS, depends_on=("network", "dns*"))).endswith(
        "; does not run while network or dns* is down"
    )
