"""Tables whose axes are one set: one vocabulary, from the estimator to updates and folders."""

import numpy as np
import polars as pl
import pytest

import exchangeable as ex
from exchangeable.errors import InputError
from exchangeable.training.config import TrainingConfig

pytestmark = pytest.mark.filterwarnings("ignore::exchangeable.errors.InputWarning")
STEPS = TrainingConfig(steps=15)
MODELS = {"residual": STEPS, "factorized": STEPS, "self-supervised": STEPS, "vmf": None}


def friends(size=16, density=0.5, seed=0):
    """Who likes whom how much, nobody themselves."""
    draws = np.random.default_rng(seed)
    tastes = draws.normal(size=(size, 2))
    liking = tastes @ np.array([[0.2, 1.0], [-1.0, 0.2]]) @ tastes.T
    rows = [
        (f"p{i:02}", f"p{j:02}", liking[i, j])
        for i in range(size)
        for j in range(size)
        if i != j and draws.random() < density
    ]
    return pl.DataFrame(rows, schema=["who", "whom", "value"], orient="row")


def fitted(model="vmf", frame=None, **settings):
    completer = ex.Completer(model, joint=True, training=MODELS.get(model), **settings)
    return completer.fit(friends() if frame is None else frame)


@pytest.fixture(scope="module", params=MODELS)
def completer(request):
    return fitted(request.param)


def test_both_axes_have_one_vocabulary():
    frame = pl.DataFrame({"who": ["b", "a"], "whom": ["c", "a"], "value": [1.0, 2.0]})
    table = ex.Table.of(frame, joint=True).in_label_order()
    assert table.shape == (3, 3)
    for vocabulary in table.vocabularies:
        assert vocabulary.labels.to_list() == ["a", "b", "c"]
    assert table.index.tolist() == [[0, 0], [1, 2]]
    assert ex.Table.of(frame).shape == (2, 2)


def test_labels_from_a_file_are_numbers_only_where_all_of_both_axes_are(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("who,whom,value\n1,2,3\n2,x,4\n")
    labels = ex.Table.read(path, joint=True).vocabularies[0].labels.to_list()
    assert sorted(labels) == ["1", "2", "x"]
    path.write_text("who,whom,value\n1,2,3\n2,9,4\n")
    assert ex.Table.read(path, joint=True).vocabularies[1].labels.to_list() == [1, 2, 9]


def test_what_a_joint_table_needs_is_said():
    mixed = pl.DataFrame({"who": [1, 2], "whom": ["a", "b"], "value": [1.0, 2.0]})
    with pytest.raises(InputError, match="labels of one type, but those of 'who' are whole"):
        ex.Table.of(mixed, joint=True)
    three = pl.DataFrame({"a": ["x"], "b": ["x"], "c": ["y"], "value": [1.0]})
    with pytest.raises(InputError, match="has two axes, which are one set, but this one has 3"):
        ex.Table.of(three, axes=("a", "b", "c"), joint=True)


def test_any_member_is_predicted_on_either_axis(completer):
    cells = [("p00", "p01"), ("p01", "p00"), ("p03", "p03"), ("new", "p01"), ("p01", "new")]
    mean, ends = completer.predict(cells), completer.predict_interval(cells)
    assert np.isfinite(mean).all()
    assert (ends[:, 0] <= mean).all()
    assert (mean <= ends[:, 1]).all()


@pytest.mark.parametrize("axis", ["who", "whom"])
def test_nobody_is_recommended_themselves(completer, axis):
    other = "whom" if axis == "who" else "who"
    for include_seen in (False, True):
        found = completer.recommend("p03", n=50, axis=axis, include_seen=include_seen)
        assert "p03" not in found[other].to_list()
        assert not include_seen or len(found) == 15
    many = completer.recommend(["p03", "p04"], n=50, include_seen=True)
    assert (many["who"] != many["whom"]).all()


def test_where_the_diagonal_has_values_it_is_listed_too():
    loop = pl.DataFrame({"who": ["p05"], "whom": ["p05"], "value": [3.0]})
    completer = fitted(frame=pl.concat([friends(), loop]))
    assert "p03" in completer.recommend("p03", n=50)["whom"].to_list()


def test_a_new_member_comes_on_both_axes_at_once(completer):
    cells = [("zoe", "p01"), ("p02", "zoe"), ("zoe", "zoe")]
    before = completer.predict([("p02", "zoe")])
    grown = fitted(completer.model).update(cells, [2.0, 4.0, 1.0])
    assert grown.table_.shape == (17, 17)
    assert grown.table_.vocabularies[0] is grown.table_.vocabularies[1]
    assert grown.cells_.joint
    assert np.isfinite(grown.predict([("p05", "zoe"), ("zoe", "p05")])).all()
    assert grown.predict([("p02", "zoe")]) != before
    assert grown.table_.positions([("zoe", "zoe")]).tolist() == [len(completer.table_) + 2]


def test_an_update_of_a_trained_model_extends_its_memory_and_rewrites_changed_cells():
    """What is folded in is near what reading all cells again gives, which starts from nothing."""
    completer = fitted("residual")
    frame = friends()
    known = frame.select("who", "whom").rows()[:2]
    cells, values = [*known, ("zoe", "p01"), ("p02", "zoe")], [3.0, -3.0, 2.0, 4.0]
    queries = [("zoe", "p03"), ("p03", "zoe"), *known, ("p08", "p09")]
    stale = completer.predict(queries)
    folded = completer.update(cells, values).predict(queries)
    anew = completer.refresh().predict(queries)
    assert np.abs(folded - anew).max() < 0.5 * np.abs(stale - anew).max()


def test_a_folder_keeps_that_axes_are_one_set(completer, tmp_path):
    completer.save(tmp_path / "saved")
    loaded = ex.Completer.load(tmp_path / "saved")
    assert loaded.joint
    assert loaded.table_.joint
    assert loaded.cells_.joint
    cells = [("p00", "p01"), ("p03", "p03"), ("p01", "new")]
    assert (loaded.predict(cells) == completer.predict(cells)).all()
    loaded.update([("zoe", "p01")], [1.0])
    assert loaded.table_.shape == (17, 17)


def test_a_forgotten_member_is_gone_from_both_axes():
    left = fitted().forget("p04", axis="whom").table_
    assert left.shape == (15, 15)
    assert "p04" not in left.vocabularies[0].labels.to_list()


def test_a_member_that_has_cells_on_one_axis_stays_on_both():
    frame = pl.DataFrame({"who": ["a", "b", "c"], "whom": ["b", "c", "b"], "value": [1.0, 2, 3]})
    left = fitted(frame=frame).forget_cells([("a", "b")]).table_
    assert [v.labels.to_list() for v in left.vocabularies] == [["b", "c"]] * 2


@pytest.mark.parametrize("model", ["residual", "factorized"])
def test_similar_members_are_alike_in_both_roles(model):
    completer = fitted(model)
    one, other = completer.similar("p03", n=5), completer.similar("p03", n=5, axis="whom")
    assert one["who"].to_list() == other["whom"].to_list()
    assert "p03" not in one["who"].to_list()


def test_cells_to_measure_next_are_of_two_members():
    found = fitted().suggest(n=30)
    assert (found["who"] != found["whom"]).all()


def test_features_of_the_members_are_of_both_axes():
    people = pl.DataFrame({"name": [f"p{i:02}" for i in range(20)], "age": range(20)})
    completer = ex.Completer("residual", joint=True, training=STEPS)
    completer.fit(friends(), features={"whom": people})
    assert completer.table_.shape == (20, 20)
    assert [axis.names for axis in completer.fitted_.features.axes] == [("age",), ("age",)]


def test_a_joint_model_reads_joint_tables_only(tmp_path):
    completer = fitted("self-supervised")
    completer.predictor_.trained.save(tmp_path / "model")
    with pytest.raises(InputError, match="made for joint tables, whose axes are one set"):
        ex.Completer(tmp_path / "model").fit(friends())
    again = ex.Completer(tmp_path / "model", joint=True).fit(friends(seed=1))
    assert np.isfinite(again.predict([("p00", "p01")])).all()


def test_positives_of_a_joint_table_are_ranked_without_oneself():
    links = friends().select("who", "whom")
    completer = ex.Completer(joint=True).fit(links)
    assert "p03" not in completer.recommend("p03", n=50, include_seen=True)["whom"].to_list()
    assert len(completer.recommend("p03", n=4)) == 4
    trained = ex.Completer("residual", joint=True, training=STEPS).fit(links)
    index = trained.cells_.index
    assert (index[:, 0] != index[:, 1]).all()


def listed_once(size=40, share=0.6):
    """Distances of places: symmetric, each listed in one direction."""
    draws = np.random.default_rng(1)
    places = draws.normal(size=(size, 2))
    pairs = [(i, j) for i in range(size) for j in range(i) if draws.random() < share]
    turned = [(j, i) if draws.random() < 0.5 else (i, j) for i, j in pairs]
    return pl.DataFrame(
        [(f"q{i:02}", f"q{j:02}", float(places[i] @ places[j])) for i, j in turned],
        schema=["from", "to", "value"],
        orient="row",
    )


@pytest.mark.parametrize("model", ["vmf", "pretrained"])
def test_symmetric_values_are_read_in_both_directions(model):
    frame = listed_once()
    completer = ex.Completer(model, joint=True).fit(frame)
    assert len(completer.table_) == len(frame)
    assert len(completer.cells_) == 2 * len(frame)
    assert any("cells of a joint table are read in both directions" in n for n in completer.notes_)
    turned = frame.select("to", "from").rename({"to": "from", "from": "to"})
    error = np.sqrt(np.mean((completer.predict(turned) - frame["value"].to_numpy()) ** 2))
    apart = ex.Completer(model).fit(frame)
    error_apart = np.sqrt(np.mean((apart.predict(turned) - frame["value"].to_numpy()) ** 2))
    assert error < 0.5 * error_apart


def test_values_without_symmetry_are_read_as_they_are():
    completer = fitted("vmf", friends(size=40))
    assert len(completer.cells_) == len(completer.table_)
    assert any("cells of a joint table are read as they are" in note for note in completer.notes_)


def test_updates_of_a_mirrored_table_come_in_both_directions(tmp_path):
    completer = ex.Completer("vmf", joint=True).fit(listed_once())
    completer.save(tmp_path / "saved")
    completer = ex.Completer.load(tmp_path / "saved")
    cells = len(completer.cells_)
    completer.update([("new", "q01")], [5.0])
    assert len(completer.cells_) == cells + 2
    known = completer.table_.frame(completer.table_.index[:1]).row(0)
    completer.update([known[::-1]], [7.0])  # what was a copy is observed now
    assert len(completer.cells_) == cells + 2
    assert values_of(completer, known) != values_of(completer, known[::-1]) == 7.0
    completer.update([("new", "q01")], [6.0])
    assert values_of(completer, ("new", "q01")) == values_of(completer, ("q01", "new")) == 6.0


def values_of(completer, cell):
    """The value with which a cell was read."""
    (place,) = (completer.cells_.index == completer.table_.cells([cell])).all(axis=1).nonzero()[0]
    return completer.cells_.values[place]
