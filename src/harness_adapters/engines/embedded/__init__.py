"""The embedded engine: token-level serving of one model with many LoRA adapters, computed in fp32 on a CPU.

Reading order: `requests` (what is asked), `engine` (the whole), `batcher` and `backend` (who runs when), then the lean
backend: `lean` and `sequence`, `step` and `tables` (what is computed), `forward`, `layout`, `kernels`, `products`,
`team`, `helpers` and `compiled` (how), `model` and `halves` (the weights), `peft_folder` and `lora`, `kv` and
`prefix_cache` (the memory), `sampling`; the `fallback` for other architectures; `server` (HTTP). Importing this package
imports torch and numba.
"""

from harness_adapters.engines.embedded.engine import EmbeddedEngine
from harness_adapters.engines.embedded.requests import Answer, Generation

__all__ = ["Answer", "EmbeddedEngine", "Generation"]
