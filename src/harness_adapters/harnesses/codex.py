"""codex (`@openai/codex`): what its tools do.

A command is a list of words in `shell`, which no shell splits again, and one text in the others.
The map stands alone: `safeagents` judges codex's calls by it, and no adapter can be trained for codex yet.
"""

from __future__ import annotations

from harness_adapters.records import Effect, ToolMap

TOOL_MAP = ToolMap(
    harness="codex",
    tools={
        "shell": (Effect("shell", {"command": "command"}),),
        "local_shell": (Effect("shell", {"command": "command"}),),
        "container.exec": (Effect("shell", {"command": "cmd"}),),
        "shell_command": (Effect("shell", {"command": "command"}),),
        "exec_command": (Effect("shell", {"command": "cmd"}),),
        # What is typed into a running process may be read by a shell.
        "write_stdin": (Effect("shell", {"command": "chars"}),),
        "apply_patch": (Effect("write", {"patch": "input"}),),
        "view_image": (Effect("read", {"path": "path"}),),
        "web_search": (Effect("fetch", {"query": "query"}),),
    },
)
