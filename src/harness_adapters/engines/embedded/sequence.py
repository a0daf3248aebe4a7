"""One request's way through the lean engine: where it stands in its prompt, and where its keys and values are.

A context is, in token order: a pinned path of the prefix cache, own segments (the prompt's rest, outgrown slots), and
the slot. While the prompt is filled in there is no slot and `filling` is the segment being written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness_adapters.engines.embedded.backend import Job
from harness_adapters.engines.embedded.kv import KVShape, Segment, SlotPool, gather
from harness_adapters.engines.embedded.prefix_cache import LONG, Match, Node, PrefixCache, path_of


@dataclass(slots=True, eq=False)
class Sequence(Job):
    """See the module head. `key` names the prefix tree; `filled` counts positions of `filling` that are valid."""

    node: Node | None = None
    referred: int = 0
    own: list[Segment] = field(default_factory=list)
    filling: Segment | None = None
    filled: int = 0
    slot: int = -1
    slot_length: int = 0

    @property
    def past(self) -> tuple[Segment, ...]:
        """Complete segments of the context, in token order; the slot or `filling` follows them."""
        return (*path_of(self.node), *self.own)

    @property
    def position(self) -> int:
        """Absolute position of the next token whose keys and values are computed."""
        if self.filling is not None:
            return self.referred + self.filled
        return len(self.request.prompt) + len(self.tokens) - 1

    @property
    def prompt_left(self) -> int:
        return len(self.request.prompt) - self.position if self.filling is not None else 0

    def end(self, pool: SlotPool) -> tuple[Segment, int]:
        """Where the next keys and values are written: the end of the context, and how many of its positions are
        valid."""
        if self.filling is not None:
            return self.filling, self.filled
        return pool.view(self.slot, pool.capacity), self.slot_length

    def begin(self, shape: KVShape, match: Match) -> None:
        """Take over a cache match and make room for the rest of the prompt."""
        self.node, self.referred, self.cached = match.node, match.referred, match.length
        filling = Segment.empty(shape, len(self.request.prompt) - match.referred)
        for piece in match.pieces:
            filling.write(self.filled, piece)
            self.filled += piece.length
        self.filling = filling

    def end_prompt(self, cache: PrefixCache, pool: SlotPool) -> None:
        """The prompt is whole: store it, then refer to its segment if it is long, else copy it into the slot."""
        assert self.filling is not None
        segment, self.filling = self.filling, None
        self.own = [segment]
        stored = cache.insert(self.key, self.request.prompt, self._computed)
        self.slot = pool.take()
        if segment.length < min(LONG, pool.capacity):
            pool.view(self.slot, segment.length).write(0, segment)
            self.slot_length, self.own = segment.length, []
        elif stored is not None and stored.segment is segment:
            stored.pins += 1
            cache.release(self.node)
            self.node, self.referred, self.own = stored, self.referred + segment.length, []

    def room_in_slot(self, pool: SlotPool) -> None:
        """Turn a full slot into a segment of the sequence's own."""
        if self.slot_length == pool.capacity:
            self.own.append(pool.view(self.slot, self.slot_length).copy(0, self.slot_length))
            self.slot_length = 0

    def leave(self, cache: PrefixCache, pool: SlotPool, *, store: bool) -> None:
        """Give back what the sequence holds; `store` keeps its keys and values for the session's next request."""
        if self.slot >= 0:
            if store:
                self.own.append(pool.view(self.slot, self.slot_length))
                known = self.referred + sum(part.length for part in self.own)
                cache.insert(self.key, (*self.request.prompt, *self.tokens)[:known], self._copied)
            else:
                pool.clear(self.slot)
            pool.give_back(self.slot)
            self.slot = -1
        cache.release(self.node)
        self.node, self.own, self.filling = None, [], None

    def _computed(self, start: int, stop: int) -> Segment:
        return gather(self.own, start - self.referred, stop - self.referred)

    def _copied(self, start: int, stop: int) -> Segment:
        segment = self._computed(start, stop)
        return segment.copy(0, segment.length) if segment is self.own[-1] else segment
