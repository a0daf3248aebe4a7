"""Command lines: parse, call, print; nothing else. Everything heavy is imported inside the command that needs it."""
