"""Parts for tests, ours and our users': scripted counterparts, tiny models, contract suites. See docs/testing.md.

The scripted engine and harness, the in-process sandbox and a tokenizer without files are re-exported here. What needs
torch is imported from its module: `testing.tiny_models` makes small random models and adapters,
`testing.engine_contract` checks an engine.
"""

from harness_adapters.engines.scripted import Fault, ScriptedEngine, ScriptedTurn
from harness_adapters.harnesses.scripted import Scripted
from harness_adapters.sandbox.inprocess import InProcessSandbox
from harness_adapters.testing.byte_tokenizer import byte_tokenizer

__all__ = ["Fault", "InProcessSandbox", "Scripted", "ScriptedEngine", "ScriptedTurn", "byte_tokenizer"]
