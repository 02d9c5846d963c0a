"""From an engine's KV tensors to block bytes and back; the only core package that touches torch."""
