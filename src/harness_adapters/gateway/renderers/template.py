"""The ChatML chat template as Jinja, for a model's tokenizer configuration.

It is the same format that `ChatMLRenderer` writes; a test keeps the two equal. Whoever serves a trained adapter
without the gateway (vLLM, llama.cpp) needs this template with the weights, so that the model meets the same text.

The wording is part of what adapters are trained on: changing a character makes older adapters worse.
"""

from __future__ import annotations

TOOLS_INTRODUCTION = (
    "# Tools\n\n"
    "You can call the functions whose signatures stand between <tools></tools>, one JSON object a line:\n"
    "<tools>"
)

TOOLS_INSTRUCTION = (
    "\n</tools>\n\n"
    "To call a function, write one JSON object with its name and its arguments between <tool_call></tool_call>; "
    "write one such block for each call:\n"
    "<tool_call>\n"
    '{"name": <name of the function>, "arguments": <object of arguments>}\n'
    "</tool_call>"
)

_HEAD = (
    """
{%- set has_system = messages and messages[0].role == 'system' %}
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if has_system %}{{- (messages[0].content or '') ~ '\\n\\n' }}{%- endif %}
{{- INTRODUCTION }}
{%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
{{- INSTRUCTION ~ '<|im_end|>\\n' }}
{%- endif %}
""".strip()
    .replace("INTRODUCTION", repr(TOOLS_INTRODUCTION))
    .replace("INSTRUCTION", repr(TOOLS_INSTRUCTION))
)

_MESSAGES = """
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' ~ (message.content or '') ~ '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}
{{- '<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' }}
{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
{%- set arguments = call.function.arguments %}
{{- '<tool_call>\\n{"name": ' ~ (call.function.name | tojson) ~ ', "arguments": ' }}
{{- arguments if arguments is string else (arguments | tojson) }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif not (loop.first and tools and has_system) %}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') ~ '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""".strip()

CHATML_TEMPLATE = _HEAD + "\n" + _MESSAGES
"""Text of `chat_template` for `tokenizer_config.json`; rendered as transformers does (blocks trimmed)."""
