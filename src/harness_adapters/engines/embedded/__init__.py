"""The embedded engine: token-level serving of a Llama-type model with many LoRA adapters, in fp32 on a CPU.

Reading order: `requests` (what is asked), `engine` (the whole), `batcher` and `sequence` (who runs when), `model`,
`attention` and `lora` (the arithmetic), `kv` and `prefix_cache` (the memory), `sampling`, `server` (HTTP).
Importing this package imports torch.
"""

from harness_adapters.engines.embedded.engine import EmbeddedEngine
from harness_adapters.engines.embedded.requests import Answer, Generation

__all__ = ["Answer", "EmbeddedEngine", "Generation"]
