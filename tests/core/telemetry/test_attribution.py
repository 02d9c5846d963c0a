"""Attention by kinds and windows (D.19: with groups told it is not always ``full``), and names that stay private."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmcache_core.telemetry.attribution import architecture_of, attention_architecture, joined, public_model_name


@pytest.mark.parametrize(
    ("kinds", "windows", "model_type", "architecture"),
    [
        ((), (-1,), "", "full"),
        (("attention",), (-1,), "llama", "full"),
        (("full",), (), "", "full"),
        (("mla",), (-1,), "deepseek_v3", "full"),
        ((), (-1, 4), "", "full+swa"),
        (("attention", "attention"), (-1, 4), "gemma3_text", "full+swa"),
        (("attention", "attention"), (-1, 1), "", "full+swa"),  # the kind says more than the window
        ((), (-1, 1), "", "full+linear"),
        (("attention", "recurrent"), (-1, 1), "qwen3_next", "full+linear"),
        (("attention", "recurrent"), (-1, -1), "", "full+linear"),
        (("full", "sliding_window"), (), "", "full+swa"),
        (("attention", "aux"), (-1, 1), "", "full"),
        (("attention",), (8,), "mistral", "swa"),
        (("recurrent",), (1,), "mamba2", "linear"),
        (("mla",), (-1,), "deepseek_v32", "dsa"),
        ((), (), "deepseek_v32", "dsa"),
        ((), (), "", "unknown"),
        ((), (0,), "", "unknown"),
        (("aux",), (1,), "", "unknown"),
        (("novelty",), (-1,), "", "unknown"),
    ],
)
def test_attention(kinds: tuple[str, ...], windows: tuple[int, ...], model_type: str, architecture: str) -> None:
    assert attention_architecture(kinds, windows, model_type) == architecture


@pytest.mark.parametrize("windows", ["-1,4", (-1, 4), [-1, 4], ["-1", "4"]])
def test_an_events_windows_may_be_a_list_or_text(windows: object) -> None:
    assert architecture_of({"attn_windows": windows}) == "full+swa"


@pytest.mark.parametrize("metadata", [{}, {"attn_windows": None, "group_kinds": 3}, {"attn_windows": "x"}])
def test_an_event_that_tells_nothing_is_unknown(metadata: dict[str, object]) -> None:
    assert architecture_of(metadata) == "unknown"


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "gpt2", "Qwen/Qwen3-0.6B", "smollm2"])
def test_names_that_can_be_public_are_told(name: str) -> None:
    assert public_model_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["/srv/models/secret", "./secret", "../secret", "~/secret", "C:\\models\\x", "s3://bucket/x", "a/b/c", "me@host",
     "10.0.0.1:8000", "a b", "", None, 3, "x" * 200, "org/..", "a\nb"],
)  # fmt: skip
def test_a_path_an_address_and_anything_odd_is_private(name: object) -> None:
    assert public_model_name(name) == "private"


def test_what_is_a_folder_here_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "acme").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert public_model_name("models/acme") == "private"


@pytest.mark.parametrize(("value", "text"), [("a,b", "a,b"), (["a", "b"], "a,b"), ((1, 2), "1,2"), (None, ""), (3, "")])
def test_lists_are_joined(value: object, text: str) -> None:
    assert joined(value) == text
