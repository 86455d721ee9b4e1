"""Completers that several tests share."""

import pytest
from tests.support.film_club import LABELS, RATINGS, SHORT, TRAINED

from exchangeable.completion.completer import Completer


@pytest.fixture(scope="session")
def fitted():
    made = {}

    def get(model):
        if model not in made:
            training = SHORT if model in TRAINED else None
            made[model] = Completer(model, training=training).fit(LABELS, RATINGS)
        return made[model]

    return get
