"""opencode (`opencode-ai`): what its tools do.

The map stands alone: `safeagents` judges opencode's calls by it, and no adapter can be trained for opencode yet.
"""

from __future__ import annotations

from harness_adapters.records import Effect, ToolMap

TOOL_MAP = ToolMap(
    harness="opencode",
    tools={
        "bash": (Effect("shell", {"command": "command"}),),
        "read": (Effect("read", {"path": "filePath"}),),
        "write": (Effect("write", {"path": "filePath", "content": "content"}),),
        "edit": (Effect("write", {"path": "filePath", "content": "newString"}),),
        "apply_patch": (Effect("write", {"patch": "patchText"}),),
        "list": (Effect("list", {"path": "path"}),),
        "glob": (Effect("list", {"path": "path"}), Effect("list", {"path": "pattern"})),
        "grep": (Effect("read", {"path": "path"}),),
        "webfetch": (Effect("fetch", {"url": "url"}),),
        "websearch": (Effect("fetch", {"query": "query"}),),
        "task": (Effect("delegate", {"prompt": "prompt"}), Effect("delegate", {"prompt": "command"})),
    },
)
