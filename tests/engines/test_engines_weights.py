"""Weights converted from a packaged GGUF file, on a tiny file of the same architecture."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.torch import load_file

from harness_adapters.engines import weights
from harness_adapters.errors import InfraError

WIDTH, VOCABULARY = 32, 300


def tiny_gguf(path: Path) -> Path:
    """A Llama of no layers: an embedding, a norm and a byte-level tokenizer."""
    writer = GGUFWriter(path, "llama")
    writer.add_vocab_size(VOCABULARY)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(0)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_context_length(64)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["t", "1", *(f"t{number}" for number in range(VOCABULARY - 2))])
    writer.add_token_types([3] + [1] * (VOCABULARY - 1))
    writer.add_token_merges(["t 1"])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_tensor("token_embd.weight", np.ones((VOCABULARY, WIDTH), dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_disk_that_refuses_the_converted_weights_is_an_infra_error_and_the_next_call_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(weights, "packaged_gguf", lambda: source)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InfraError, match="File too large"):
            weights.packaged_model("", lambda _: None, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path / "cache" / "models") == []
    folder = weights.packaged_model("", lambda _: None, tmp_path / "cache")
    assert load_file(str(folder / "model.safetensors")).keys() == {"model.embed_tokens.weight", "model.norm.weight"}
