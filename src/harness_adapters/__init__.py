"""Train one small LoRA adapter per base model and coding-agent harness, with the harness unmodified."""

__version__ = "0.1.0"
