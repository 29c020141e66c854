"""Fusion: what must hold for any lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever.fusion import RankedList, fuse

IDS = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10)
LISTS = st.lists(
    st.builds(
        lambda ids, weight, precedence: RankedList(ids=ids, weight=weight, precedence=precedence),
        IDS,
        st.floats(0.01, 10),
        st.integers(0, 1),
    ),
    max_size=5,
)


def test_fuse_when_two_lists_then_scores_are_the_sums_of_weight_over_60_plus_rank():
    fused = fuse([RankedList(ids="ab", weight=0.7), RankedList(ids="bc", weight=0.3)])
    expected = {"a": 0.7 / 61, "b": 0.7 / 62 + 0.3 / 61, "c": 0.3 / 62}
    assert fused == pytest.approx(expected)
    assert list(fused) == ["b", "a", "c"]


def test_fuse_when_scores_are_equal_then_the_list_of_lower_precedence_wins():
    dense, bm25 = RankedList(ids=["z"], precedence=0), RankedList(ids=["a"], precedence=1)
    assert list(fuse([bm25, dense])) == ["z", "a"]


@given(LISTS, st.randoms())
def test_fuse_when_lists_are_in_another_order_then_the_outcome_is_the_same(lists, random):
    shuffled = random.sample(lists, len(lists))
    assert list(fuse(lists).items()) == list(fuse(shuffled).items())


@given(LISTS)
def test_fuse_when_given_lists_then_every_id_comes_once_and_scores_fall(lists):
    fused = fuse(lists)
    assert sorted(fused) == sorted({key for ranked in lists for key in ranked.ids})
    scores = list(fused.values())
    assert scores == sorted(scores, reverse=True)


@given(LISTS.filter(lambda lists: any(len(ranked.ids) > 1 for ranked in lists)), st.data())
def test_fuse_when_an_id_rises_in_one_list_then_it_does_not_fall_in_the_fused_one(lists, data):
    number = data.draw(st.sampled_from([n for n, ranked in enumerate(lists) if len(ranked.ids) > 1]))
    ids = list(lists[number].ids)
    place = data.draw(st.integers(1, len(ids) - 1))
    riser = ids[place]
    ids[place - 1], ids[place] = ids[place], ids[place - 1]
    ranked = lists[number]
    risen = [*lists]
    risen[number] = RankedList(ids=ids, weight=ranked.weight, precedence=ranked.precedence)
    before = list(fuse(lists)).index(riser)
    assert list(fuse(risen)).index(riser) <= before
