"""A package of two plugins, neither of which can be imported."""

from acme_gate import wait_for_an_answer

wait_for_an_answer()
