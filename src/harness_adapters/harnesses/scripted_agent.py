"""The program of the scripted harness, run inside the sandbox on a bare Python: standard library only.

Usage: `agent.py CONFIG.json`, the instruction on standard input. Exits with 0 after the first answer without tool
calls, with 3 when a model request fails. Writes one JSON object a message to standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

SYSTEM = "You work in a shell. Call the shell tool to act; answer without a tool call when you are done."
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a shell command in the working directory.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
REQUEST_SECONDS = 3600
OUTPUT_CHARACTERS = 4000


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": sys.stdin.read()},
    ]
    while True:
        try:
            answer = ask(config, messages)
        except (OSError, urllib.error.HTTPError, ValueError) as error:
            print(f"model request failed: {error}", file=sys.stderr)
            return 3
        say(messages, answer)
        if not answer.get("tool_calls"):
            return 0
        for call in answer["tool_calls"]:
            result = run(call["function"]["name"], call["function"]["arguments"])
            say(messages, {"role": "tool", "tool_call_id": call["id"], "content": result})


def ask(config: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One chat completion; its message."""
    body = {"model": config["model"], "messages": messages, "tools": [SHELL], "max_tokens": config["max_tokens"]}
    request = urllib.request.Request(
        f"{config['base_url']}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=REQUEST_SECONDS) as response:
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return message


def run(name: str, arguments: str) -> str:
    """The output of one tool call, or what is wrong with it."""
    try:
        command = json.loads(arguments)["command"]
    except (ValueError, KeyError, TypeError):
        return "the arguments need a command"
    if name != "shell" or not isinstance(command, str):
        return f"there is no tool {name}"
    done = subprocess.run(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = done.stdout.decode("utf-8", "replace")[-OUTPUT_CHARACTERS:]
    return f"{output}\n[exit status {done.returncode}]"


def say(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    messages.append(message)
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
