"""claude-code (`@anthropic-ai/claude-code`): what its tools do.

The map stands alone: `safeagents` judges claude-code's calls by it, and no adapter can be trained for it yet.
"""

from __future__ import annotations

from harness_adapters.records import Effect, ToolMap

TOOL_MAP = ToolMap(
    harness="claude-code",
    tools={
        "Bash": (Effect("shell", {"command": "command"}),),
        "Read": (Effect("read", {"path": "file_path"}),),
        "Write": (Effect("write", {"path": "file_path", "content": "content"}),),
        "Edit": (Effect("write", {"path": "file_path", "content": "new_string"}),),
        "MultiEdit": (Effect("write", {"path": "file_path", "content": "edits"}),),
        "NotebookEdit": (Effect("write", {"path": "notebook_path", "content": "new_source"}),),
        "LS": (Effect("list", {"path": "path"}),),
        "Glob": (Effect("list", {"path": "path"}), Effect("list", {"path": "pattern"})),
        "Grep": (Effect("read", {"path": "path"}),),
        "LSP": (Effect("read", {"path": "filePath"}),),
        "WebFetch": (Effect("fetch", {"url": "url"}),),
        "WebSearch": (Effect("fetch", {"query": "query"}),),
        "Task": (Effect("delegate", {"prompt": "prompt"}),),
        "Agent": (Effect("delegate", {"prompt": "prompt"}),),
    },
    lasting={"Bash": "folder"},
)
