"""Cards are found by name or alias, never by likeness."""

from __future__ import annotations

import pytest

from reconstruct.cards import UnknownCard, cards, find


def test_names_and_aliases_find_their_card_whatever_the_spelling():
    for card in cards():
        assert find(card.name) == card
        for alias in card.aliases:
            assert find(alias.lower().replace("-", " ")) == card


def test_every_total_is_a_narrow_interval():
    for card in cards():
        low, high = card.total_memory
        assert 0 < low <= high
        assert high - low < 0.08 * high


def test_an_exact_total_seen_on_an_h100_lies_in_its_interval():
    assert find("H100-80GB").total_memory.contains(85028896768)


@pytest.mark.parametrize("name", ["H100-8GB", "", "H1000", "RTX"])
def test_a_similar_name_is_refused_with_the_nearest(name):
    with pytest.raises(UnknownCard, match="try "):
        find(name)
