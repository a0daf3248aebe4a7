"""Train a LoRA adapter on token rows: tries of rows in, gradient steps and adapter folders out.

`backend.TrainingBackend` is what the rest of the project relies on; `trainer.Trainer` (torch, transformers, PEFT) is
the implementation. Nothing here starts a session, talks to an engine or knows what a task is: rows come in with their
advantages, adapters and checkpoints go out as folders. Importing this package itself does not import torch.
"""
