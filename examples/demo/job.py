"""What the demo's parent asks of one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """What one process is to do.

    Attributes:
        model: Folder of the model.
        document: File whose text is the context.
        question: About the document.
        config: Configuration file of the cache; None for no cache at all.
        outage: Whether the store goes away and comes back while this process runs.
        whole: Whether prompts are kept up to their last token, and this one is asked twice.
    """

    model: str
    document: str
    question: str
    config: str | None
    outage: bool = False
    whole: bool = False

    def prompt(self, tokenizer: Any) -> list[int]:
        """Turn document and question into tokens."""
        text = f"Read this document.\n\n{Path(self.document).read_text()}\n\n{self.question}"
        chat = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
