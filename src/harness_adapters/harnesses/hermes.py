"""hermes (`hermes-agent`): what its tools do.

The map stands alone: `safeagents` judges hermes' calls by it, and no adapter can be trained for hermes yet.
"""

from __future__ import annotations

from harness_adapters.records import Effect, ToolMap

TOOL_MAP = ToolMap(
    harness="hermes",
    tools={
        "terminal": (Effect("shell", {"command": "command"}),),
        # What is written to a background process may be read by a shell.
        "process": (Effect("shell", {"command": "data"}),),
        "execute_code": (Effect("shell", {"code": "code"}),),
        "read_file": (Effect("read", {"path": "path"}),),
        "write_file": (Effect("write", {"path": "path", "content": "content"}),),
        # Either a replacement at `path` or, in mode `patch`, a whole patch that names its files itself.
        "patch": (
            Effect("write", {"path": "path", "content": "new_string"}),
            Effect("write", {"patch": "patch"}),
        ),
        "search_files": (Effect("read", {"path": "path"}),),
        "web_search": (Effect("fetch", {"query": "query"}),),
        "web_extract": (Effect("fetch", {"url": "urls"}),),
        "delegate_task": (Effect("delegate", {"prompt": "goal"}), Effect("delegate", {"prompt": "context"})),
    },
    lasting={"terminal": "all"},
)
