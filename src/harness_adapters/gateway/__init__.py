"""The HTTP proxy between a harness and an engine: the only process that sees both.

Towards the harness it speaks chat completions; towards the engine it speaks token ids. What was sampled stands
verbatim in the record (`capture`), every tool call is judged before it leaves (`holdback`), and budgets end a session
with a final text (`limits`).
"""

from harness_adapters.gateway.dialects.chat import ALIAS
from harness_adapters.gateway.gateway import DEFAULT_SESSION, Gateway, GatewaySession
from harness_adapters.gateway.spec import SessionCapture, SessionSpec

__all__ = ["ALIAS", "DEFAULT_SESSION", "Gateway", "GatewaySession", "SessionCapture", "SessionSpec"]
