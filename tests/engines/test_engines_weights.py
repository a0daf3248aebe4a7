"""Weights converted from a packaged GGUF file, on a tiny file of the same architecture."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
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


def test_a_conversion_killed_before_its_end_leaves_no_lock_and_what_is_left_of_it_goes_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_gguf(tmp_path / "tiny.gguf")
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom harness_adapters.engines import weights\n"
        "def at_the_end(*_):\n print('converted', flush=True)\n time.sleep(600)\n"
        "weights.packaged_gguf = lambda: Path(sys.argv[1])\nweights._write_manifest = at_the_end\n"
        "weights.packaged_model('', lambda _: None, Path(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "cache")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"converted\n"
        killed.kill()
    (left,) = (tmp_path / "cache" / "models").iterdir()
    assert (left / "model.safetensors").is_file()
    monkeypatch.setattr(weights, "packaged_gguf", lambda: source)
    folder = weights.packaged_model("", lambda _: None, tmp_path / "cache")
    assert weights.find_damage(folder) == ""
    assert list(folder.parent.iterdir()) == [folder]
    left.mkdir()  # as of a second process, killed while it waited for the first one's conversion to be there
    assert weights.packaged_model("", lambda _: None, tmp_path / "cache") == folder
    assert list(folder.parent.iterdir()) == [folder]
