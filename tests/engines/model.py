"""SmolLM2 as vLLM reads it: made once from the GGUF inside a wheel, kept in the checkout's `.cache`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "engines" / "smollm2"


def model_folder() -> Path:
    """Give the model's folder; about half a minute where it has to be made."""
    if not FOLDER.exists():
        made = FOLDER.with_name("made")
        subprocess.run([sys.executable, "-m", "examples.demo.model", str(made)], check=True, cwd=ROOT)
        file = made / "config.json"
        config = json.loads(file.read_text())
        config.pop("quantization_config", None)  # the weights are plain; vLLM refuses what it names
        file.write_text(json.dumps(config))
        made.rename(FOLDER)
    return FOLDER
