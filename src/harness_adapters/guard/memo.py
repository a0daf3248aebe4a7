"""Bounded memories of pure functions: what a text parses to, what a conversation so far has left behind.

Invariant: a memory only ever saves work. What it holds follows from the key alone, is never changed once it is in, and
may be forgotten at any time, so no verdict depends on what is remembered.
Safe to use from several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Concatenate, Generic, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_CLEARERS: list[Callable[[], None]] = []


class Memo(Generic[Key, Value]):
    """The most recently used values, at most `entries` of them that weigh at most `weight` (bytes, as told) together.

    Anything over a sixteenth of `weight` is not kept at all, so that one value cannot drive out the rest.
    """

    def __init__(self, *, entries: int, weight: int) -> None:
        self._entries = entries
        self._weight = weight
        self._held = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        on_clear(self.clear)

    def get(self, key: Key) -> Value | None:
        """The value kept for `key`, or None."""
        with self._lock:
            kept = self._values.get(key)
            if kept is None:
                return None
            self._values.move_to_end(key)
            return kept[0]

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Keep `value`, and forget the least recently used ones that no longer fit."""
        if weight > self._weight // 16:
            return
        with self._lock:
            old = self._values.pop(key, None)
            self._held += weight - (old[1] if old is not None else 0)
            self._values[key] = (value, weight)
            while self._held > self._weight or len(self._values) > self._entries:
                _, (_, freed) = self._values.popitem(last=False)
                self._held -= freed

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._held = 0

    @property
    def size(self) -> tuple[int, int]:
        """Number and weight of the values kept."""
        return len(self._values), self._held


def remembered(
    *, entries: int = 512, weight: int = 16 << 20
) -> Callable[[Callable[Concatenate[str, Rest], Value]], Callable[Concatenate[str, Rest], Value]]:
    """Decorates a pure function of a text (and of little else) that never gives None, to be worked out once a text."""

    def decorate(function: Callable[Concatenate[str, Rest], Value]) -> Callable[Concatenate[str, Rest], Value]:
        memo: Memo[tuple[object, ...], Value] = Memo(entries=entries, weight=weight)

        @wraps(function)
        def remembering(text: str, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Value:
            key = (text, *args, *kwargs.values())
            value = memo.get(key)
            if value is None:
                value = function(text, *args, **kwargs)
                memo.put(key, value, 128 + 4 * len(text))
            return value

        return remembering

    return decorate


def on_clear(clearer: Callable[[], None]) -> None:
    """Have `clearer` called by `clear_memories`."""
    _CLEARERS.append(clearer)


def clear_memories() -> None:
    """Forget everything that any memory holds: for measurements and tests, verdicts stay the same."""
    for clearer in _CLEARERS:
        clearer()
