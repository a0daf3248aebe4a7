"""The trie holds every row exactly, once per shared prefix, and its order says who is whose ancestor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from training_cases import row, row_sets, session_rows

from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training.attention import LONGEST_BLOCK, cut_blocks
from harness_adapters.training.forward import shared_prefix_length
from harness_adapters.training.trie import Trie, build, pack


def _context(trie: Trie, node: int) -> tuple[int, ...]:
    return tuple(trie.token_ids[[*trie.path(node), node]].tolist())


def _needed(row: TrainRow) -> tuple[int, ...]:
    return row.token_ids[: max(place for place, mark in enumerate(row.trained) if mark)]


def _trained_tries(rows: list[TrainRow]) -> Trie:
    assume(any(any(row.trained) for row in rows))
    return build(rows)


@given(row_sets())
@settings(deadline=None)
def test_every_trained_token_is_a_term_of_its_own_with_its_whole_context(rows: list[TrainRow]) -> None:
    trie = _trained_tries(rows)
    found = {
        (int(index), _context(trie, int(node)), int(token), float(old), float(advantage))
        for index, node, token, old, advantage in zip(
            trie.term_rows, trie.term_nodes, trie.term_tokens, trie.term_logprobs, trie.term_advantages, strict=True
        )
    }
    expected = {
        (index, row.token_ids[:place], row.token_ids[place], row.logprobs[place], row.advantage)
        for index, row in enumerate(rows)
        for place, mark in enumerate(row.trained)
        if mark
    }
    assert found == expected
    assert len(trie.term_rows) == sum(sum(row.trained) for row in rows)


@given(row_sets())
@settings(deadline=None)
def test_no_context_is_stored_twice_and_none_that_predicts_nothing(rows: list[TrainRow]) -> None:
    trie = _trained_tries(rows)
    contexts = [_context(trie, node) for node in range(len(trie))]
    wanted = {
        ids[:length] for ids in (_needed(row) for row in rows if any(row.trained)) for length in range(1, len(ids) + 1)
    }
    assert len(contexts) == len(set(contexts))
    assert set(contexts) == wanted
    assert [len(context) - 1 for context in contexts] == trie.depths.tolist()


@given(row_sets())
@settings(deadline=None)
def test_sees_equals_walking_up_the_parents(rows: list[TrainRow]) -> None:
    trie = _trained_tries(rows)
    nodes = np.arange(len(trie))
    walked = [[key == node or key in trie.path(node) for key in nodes] for node in nodes]
    assert trie.sees(nodes, nodes).tolist() == walked


@given(row_sets())
@settings(deadline=None)
def test_a_block_needs_no_key_but_its_first_nodes_ancestors(rows: list[TrainRow]) -> None:
    trie = _trained_tries(rows)
    for first, after in itertools.combinations(range(len(trie) + 1), 2):
        outside = {key for node in range(first, after) for key in trie.path(node).tolist() if key < first}
        assert outside <= set(trie.path(first).tolist())


@given(row_sets())
@settings(deadline=None)
def test_the_detachable_prefix_is_what_all_rows_share_before_anything_trained(rows: list[TrainRow]) -> None:
    trie = _trained_tries(rows)
    needed = [_needed(row) for row in rows if any(row.trained)]
    first_term = min(row.trained.index(True) for row in rows if any(row.trained)) - 1
    agreeing = itertools.takewhile(lambda tokens: len(set(tokens)) == 1, zip(*needed, strict=False))
    assert trie.detachable == min(len(list(agreeing)), first_term)


def test_a_trained_token_right_after_the_prefix_keeps_its_predicting_node_out_of_it() -> None:
    rows = [row([1, 2, 3, tail], [False, False, False, True]) for tail in (4, 5)]
    assert build(rows).detachable == 2


def test_the_prefix_of_a_step_is_what_all_its_tries_share() -> None:
    left = build([row([1, 2, 3, 4, 5], [False] * 4 + [True])])
    right = build([row([1, 2, 9, 4, 5], [False] * 4 + [True])])
    assert shared_prefix_length([left]) == 3
    assert shared_prefix_length([left, right]) == 2


@given(row_sets())
@settings(deadline=None)
def test_packing_keeps_the_budget_loses_no_row_and_wastes_nothing(rows: list[TrainRow]) -> None:
    budget = 5
    packing = pack(rows, budget)
    kept = [index for trie in packing.tries for index in dict.fromkeys(trie.term_rows.tolist())]
    trainable = [index for index, row in enumerate(rows) if any(row.trained)]
    assert all(len(trie) <= budget for trie in packing.tries)
    assert sorted([*kept, *packing.dropped]) == trainable
    assert all(len(_needed(rows[index])) > budget for index in packing.dropped)
    assert packing.raw_tokens == sum(len(_needed(rows[index])) for index in kept)
    assert packing.unique_tokens == _fewest_tokens(sorted(_needed(rows[index]) for index in kept), budget)


def _fewest_tokens(ordered: list[tuple[int, ...]], budget: int) -> int:
    """By trying every way to cut the ordered rows."""

    def unique(part: list[tuple[int, ...]]) -> int:
        return len({ids[:length] for ids in part for length in range(1, len(ids) + 1)})

    best = 0 if not ordered else 10**9
    for cuts in itertools.product([False, True], repeat=max(len(ordered) - 1, 0)):
        bounds = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(ordered)]
        sizes = [unique(ordered[start:stop]) for start, stop in itertools.pairwise(bounds)]
        if max(sizes) <= budget:
            best = min(best, sum(sizes))
    return best


def test_rows_of_one_prompt_stay_together_when_the_budget_allows_two_prompts_but_not_all() -> None:
    def group(prompt: int) -> list[TrainRow]:
        return [row([7, *[prompt] * 20, tail, 1, 2], [False] * 21 + [True] * 3) for tail in range(3)]

    rows = [row for rows in zip(group(1), group(2), group(3), strict=True) for row in rows]
    packing = pack(rows, 60)
    members = [{rows[index].token_ids[1] for index in trie.term_rows.tolist()} for trie in packing.tries]
    assert sorted(prompt for prompts in members for prompt in prompts) == [1, 2, 3]


def test_rows_without_a_trained_token_make_no_trie() -> None:
    untrained = row([1, 2, 3], [False] * 3)
    assert pack([untrained], 10).tries == ()
    with pytest.raises(TrainingError, match="no row has a trained token"):
        build([untrained])


def test_blocks_cover_the_nodes_and_stay_short() -> None:
    trie = build(session_rows(3, 40, prefix=1300, tail=60))
    bounds = cut_blocks(trie, 10, len(trie))
    assert bounds[0] == 10
    assert bounds[-1] == len(trie)
    assert all(0 < stop - start <= LONGEST_BLOCK for start, stop in itertools.pairwise(bounds))
