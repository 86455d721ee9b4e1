"""Effects of a new member's ratings: what leaving each of them out changes."""

import numpy as np
import pytest

from exchangeable import Completer
from exchangeable.completion import effects
from exchangeable.completion.effects import effects_of_ratings
from exchangeable.completion.explain import effects_of_cells
from exchangeable.completion.ratings import encode_ratings
from exchangeable.completion.recommend import RecommendQuery, recommend
from exchangeable.datasets import load
from exchangeable.runtime.progress import SILENT, Progress

CLUB = load("film-club").table
FILMS = CLUB.vocabularies[1].labels.to_list()


def query(ratings):
    return RecommendQuery("nobody", 6, 0, ratings, {}, "error")


@pytest.mark.parametrize("model", ["pretrained", "bias"])
@pytest.mark.parametrize("batch", [1, 20, 10_000])
def test_effects_read_together_are_those_read_one_by_one(monkeypatch, model, batch):
    monkeypatch.setattr(effects, "CELLS_PER_BATCH", batch)
    completer = Completer(model, seed=0).fit_table(CLUB)
    asked = query({film: 1.0 + n % 5 for n, film in enumerate(FILMS[:7])})
    cells = recommend(completer.fitted_, asked).cells
    found = effects_of_ratings(completer, asked, cells, SILENT)
    assert [label for label, _ in found] == FILMS[:7]
    _, index, values = encode_ratings(CLUB, "nobody", 0, asked.ratings)
    cells[:, 0] = 0

    def read(kept):
        return completer.predictor_.for_new_members(0, index[kept], values[kept])

    expected = effects_of_cells(read, cells, len(index))
    np.testing.assert_allclose([one for _, one in found], expected, atol=2e-5)
    assert np.abs(expected).max() > 1e-3


def test_one_rating_is_left_out_and_none_begins_after_its_end(monkeypatch):
    completer = Completer("bias").fit_table(CLUB)
    asked = query({FILMS[0]: 5.0})
    cells = recommend(completer.fitted_, asked).cells
    ((label, moved),) = effects_of_ratings(completer, asked, cells, SILENT)
    assert label == FILMS[0]
    assert np.abs(moved).max() > 0

    def stop(share, text):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        effects_of_ratings(completer, asked, cells, Progress(show=stop))
    assert effects_of_ratings(completer, asked, cells[:0], SILENT)[0][1].shape == (0,)
