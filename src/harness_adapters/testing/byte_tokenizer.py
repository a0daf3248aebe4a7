"""A tokenizer that needs no files: one token a byte, plus ChatML's special tokens, plus phrases where asked for."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def byte_tokenizer(phrases: Sequence[str] = ()) -> Tokenizer:
    """259 tokens: the 256 bytes, `<|im_start|>`, `<|im_end|>` and `<|endoftext|>`; every text goes there and back.

    Each of `phrases` is one token more that only decodes: text is still encoded byte by byte. Where phrases are whole
    tool calls, even a random model makes some.
    """
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [*sorted(letters.alphabet()), *(letters.pre_tokenize_str(phrase)[0][0] for phrase in phrases)]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    # Split into words although no merge needs it: the library remembers thousands of the pieces that it is given, and
    # those would be whole texts.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    return tokenizer
