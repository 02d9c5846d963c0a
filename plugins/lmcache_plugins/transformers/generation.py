"""`generate` of a causal language model, with the KV of known prefixes taken from the cache."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from lmcache_core import KVCache, KVLayout
from lmcache_plugins.transformers.errors import NotCachedError
from lmcache_plugins.transformers.layers import CACHE_ARGUMENT, new_cache
from lmcache_plugins.transformers.model_kv import ModelKV, examine, look
from lmcache_plugins.transformers.peft_state import full_variant
from lmcache_plugins.transformers.prefix import Owner, PrefixStore, Restored, owners
from lmcache_plugins.transformers.prompt import Prompt, Tokens, read_prompt
from lmcache_plugins.transformers.streamer import TwoRunStreamer, heard_once

log = logging.getLogger(__name__)

_FAILED = "the cache failed"


@dataclass(frozen=True, slots=True)
class Served:
    """How one call was served.

    Attributes:
        reused_tokens: Prompt tokens whose KV came from the cache, over all sequences.
        stored_tokens: Tokens newly kept.
        uncached: ``""``, or why the model's own `generate` ran alone.
    """

    reused_tokens: int = 0
    stored_tokens: int = 0
    uncached: str = ""


class CachedGeneration:
    """Wraps a model's `generate`: known prefixes are not computed again, new ones are kept.

    Answers are those of `model.generate`. A call that the cache cannot serve, and any call after a fault
    of the cache, is `model.generate` itself. Safe from several threads where the model is.

    Args:
        model: A causal language model of transformers, in eval mode.
        cache: Such as `CacheManager.engine`, made with `layout_of` this model.
        store_generated: Whether the answer's KV is kept too, for the next turn of a conversation.

    Attributes:
        uncached: Calls that did without the cache, or whose KV could not be kept, by reason; each is logged once.
        last: How the call that ended last was served; None before the first.

    Raises:
        LayoutError: The model's KV cannot be cached correctly; says why.
    """

    def __init__(self, model: Any, cache: KVCache, *, store_generated: bool = False) -> None:
        self._model = model
        self._cache = cache
        self._kv: ModelKV = examine(model)
        self._home = (model.dtype, model.device)
        self._store_generated = store_generated
        self._prefixes = PrefixStore(cache, self._kv)
        self._lock = threading.Lock()
        self.uncached: dict[str, int] = {}
        self.last: Served | None = None

    @staticmethod
    def layout_of(model: Any) -> KVLayout:
        """Find the layout for `CacheManager.from_config`, by running one token through the model.

        The longer trial of the model is left to the constructor, which sees it as it will be used.

        Raises:
            LayoutError: A look at the model's KV tells that it cannot be cached correctly; says why.
        """
        layout, _ = look(model)
        return layout

    def generate(self, *args: Any, salt: str = "", variant: str = "", request_id: str = "", **options: Any) -> Any:
        """Call the model's `generate`, with the cache.

        Args:
            *args: As for `generate`.
            salt: The tenant's; chunks of two salts never meet.
            variant: Any further identity of the weights; needed where a PEFT adapter is loaded.
            request_id: For the cache's events.
            **options: As for `generate`.

        Returns:
            What `generate` returns.

        Raises:
            Exception: What `generate` raises; the cache adds none.
        """
        try:
            self._refuse_state()
            variant = full_variant(self._model, variant)
            prompt = read_prompt(self._model, args, options)
            self._kv.check_padding(prompt.padding)
            kept = new_cache(self._model)
            rows = owners(len(prompt.tokens), salt=salt, variant=variant, request_id=request_id)
            restored = self._prefixes.restore(prompt, rows, kept)
        except NotCachedError as reason:
            return self._alone(str(reason), None, args, options)
        except Exception as error:  # noqa: BLE001 - the border: a fault of the cache must cost time only
            return self._alone(_FAILED, error, args, options)
        if prompt.names_cache:
            options["cache_implementation"] = None
        args, options, streamer = heard_once(args, options, prompt.streamer)
        try:
            answer = self._model.generate(*args, **options, **{CACHE_ARGUMENT: kept})
        except Exception as error:
            if not self._is_to_blame(restored, kept, streamer):
                raise
            return self._alone(_FAILED, error, args, options)
        self.last = Served(restored.reused_tokens, self._keep(prompt, restored, rows, kept, answer))
        return answer

    def _refuse_state(self) -> None:
        model = self._model
        if model.training:
            raise NotCachedError("the model is in training mode")
        if (model.dtype, model.device) != self._home:
            raise NotCachedError("the model has been moved or converted since CachedGeneration was made")
        if torch.is_autocast_enabled(model.device.type):
            raise NotCachedError("autocast is on")

    def _is_to_blame(self, restored: Restored, kept: DynamicCache, streamer: TwoRunStreamer | None) -> bool:
        """Whether the first step may have failed on a restored prefix, so that nothing has been generated."""
        if not restored.columns or kept.layers[-1].get_seq_length() != restored.columns:
            return False
        return streamer is None or streamer.is_ready_for_second_run()

    def _alone(self, reason: str, error: Exception | None, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Call the model's own `generate`; its answer or its error is the caller's."""
        if error is None:
            self._count(reason, None)
        try:
            answer = self._model.generate(*args, **options)
        except Exception as own:
            if error is not None and repr(own) != repr(error):  # else the call is wrong, not the cache
                self._count(reason, error)
            raise
        if error is not None:
            self._count(reason, error)
        self.last = Served(uncached=reason)
        return answer

    def _count(self, reason: str, error: Exception | None) -> None:
        with self._lock:
            self.uncached[reason] = self.uncached.get(reason, 0) + 1
            first = self.uncached[reason] == 1
        if first:
            log.warning(
                "a call to generate did without the cache: %s (each reason is said once)", reason, exc_info=error
            )

    def _keep(self, prompt: Prompt, restored: Restored, rows: Sequence[Owner], kept: DynamicCache, answer: Any) -> int:
        try:
            if not self._cache.is_healthy():
                return 0
            sequences = self._sequences(prompt, kept, answer)
            return self._prefixes.keep(sequences, prompt, restored.known, rows, kept)
        except Exception as error:  # noqa: BLE001 - the border: the answer is there, only its KV is not kept
            self._count("the KV could not be kept", error)
            return 0

    def _sequences(self, prompt: Prompt, kept: DynamicCache, answer: Any) -> list[Tokens]:
        """Tokens of each row whose KV is there: the prompt, and the answer if that is wanted and there is one only."""
        if not self._store_generated or prompt.copies > 1:
            return [prompt.row(number) for number in range(len(prompt.tokens))]
        made = answer if isinstance(answer, torch.Tensor) else answer.sequences
        columns = min(kept.get_seq_length(), made.shape[1] - 1)  # the last token has been chosen, not computed
        tokens = made[:, :columns].cpu().numpy()
        return [tokens[number, padding:] for number, padding in enumerate(prompt.padding)]
