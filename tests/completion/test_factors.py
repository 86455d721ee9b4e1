"""Vectors of members come with their labels, and name the members that are nearest."""

import numpy as np
import pytest
from tests.support.film_club import LABELS, TRAINED

from exchangeable.completion.factors import factor_frame, nearest
from exchangeable.errors import InputError


@pytest.mark.parametrize("model", ["vmf", "bmf", *TRAINED])
def test_factors_are_a_vector_for_each_member_with_its_label(fitted, model):
    completer = fitted(model)
    for axis, name in enumerate(("member", "film")):
        frame = completer.factors(axis)
        assert frame.columns[0] == name
        assert frame[name].to_list() == sorted(LABELS[name].unique())
        assert len(frame.columns) > 1
        assert np.isfinite(frame.drop(name).to_numpy()).all()
    with pytest.raises(InputError, match="factors come from"):
        fitted("mean").factors()


def test_a_frame_of_factors_has_every_member_with_its_nearest(fitted):
    frame = factor_frame(fitted("bmf").fitted_, neighbours=2)
    assert frame.columns[:3] == ["axis", "member", "nearest"]
    films = frame.filter(frame["axis"] == "film")
    assert films["member"].to_list() == sorted(LABELS["film"].unique())
    named = {name for row in films["nearest"] for name in row.split("; ") if name}
    assert named <= set(films["member"])
    assert len(named) > 10
    with pytest.raises(InputError, match="neighbours must be 0 or more, but are -1"):
        factor_frame(fitted("bmf").fitted_, neighbours=-1)


def test_the_nearest_point_the_same_way_and_those_without_direction_have_none():
    vectors = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 3.0], [0.0, 0.0], [0.1, 0.9]])
    found = nearest(vectors, 2)
    assert found[0].tolist() == [1, 4]
    assert found[2].tolist() == [4, 1]
    assert found[3].tolist() == [-1, -1]
    assert nearest(vectors[:1], 3).tolist() == [[-1]]
    assert nearest(vectors, 9)[0].tolist() == [1, 4, 2, -1, -1]
