"""The code of notebooks, whose files are JSON."""

from __future__ import annotations

from harness_adapters.guard.nesting import parse_json


def notebook_code(content: str) -> str:
    """The code of all cells of a notebook; any other text, such as that of one cell, as it is."""
    if not content.lstrip().startswith("{"):
        return content
    try:
        notebook = parse_json(content)
    except ValueError:
        return content
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    code = [cell.get("source") for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    return "\n".join("".join(map(str, source)) if isinstance(source, list) else str(source) for source in code)
