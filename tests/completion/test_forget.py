"""What is forgotten is gone: predictions are those of a completer that never saw it."""

import numpy as np
import polars as pl
import pytest
from tests.completion.test_explain import positives
from tests.completion.test_side_information import CELLS, FILMS, USERS, VALUES, timed_table
from tests.support.film_club import FRAME, LABELS, RATINGS, SHORT

from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError

MEMBER = LABELS["member"][0]
ASKED = LABELS.filter(pl.col("member") != MEMBER).head(30)


def assert_alike(forgetful, ignorant, asked, **options):
    for completer in (forgetful, forgetful.refresh()):
        for ask in ("predict", "predict_interval"):
            one, other = (getattr(c, ask)(asked, **options) for c in (completer, ignorant))
            np.testing.assert_allclose(one, other, atol=1e-9, rtol=0)
    # Only the sentence on the columns of the input is gone.
    assert set(forgetful.notes_) <= set(ignorant.notes_)
    assert forgetful.table_.summary() in forgetful.notes_
    for mine, theirs in zip(
        forgetful.table_.vocabularies, ignorant.table_.vocabularies, strict=True
    ):
        assert mine.labels.to_list() == theirs.labels.to_list()
    assert forgetful.table_.scale == ignorant.table_.scale


@pytest.mark.parametrize("model", ["auto", "pretrained", "vmf", "residual"])
def test_a_forgotten_member_was_never_there(model):
    training = SHORT if model == "residual" else None
    kept = (LABELS["member"] != MEMBER).to_numpy()
    ignorant = Completer(model, training=training).fit(LABELS.filter(kept), RATINGS[kept])
    completer = Completer(model, training=training).fit(LABELS, RATINGS)
    before = completer.predict(ASKED)
    assert completer.forget(MEMBER) is completer
    assert np.abs(completer.predict(ASKED) - before).max() > 1e-6
    assert_alike(completer, ignorant, ASKED)
    with pytest.raises(InputError, match="member must be known, but"):
        completer.forget(MEMBER)


@pytest.mark.parametrize("model", ["pretrained", "ease", "vmf"])
def test_forgotten_positives_were_never_there(model):
    cells = positives()
    completer = Completer(model).fit(cells).forget(3)
    kept = [(user, item) for user, item in cells if user != 3]
    assert_alike(completer, Completer(model).fit(kept), kept[:20])
    completer.forget_cells(kept[5:8])
    rest = kept[:5] + kept[8:]
    assert_alike(completer, Completer(model).fit(rest), kept[:20])


def test_several_members_of_another_axis_are_forgotten_together():
    films = LABELS["film"].unique().sort()[:2].to_list()
    kept = ~LABELS["film"].is_in(films).to_numpy()
    completer = Completer("vmf").fit(LABELS, RATINGS).forget(films, axis="film")
    ignorant = Completer("vmf").fit(LABELS.filter(kept), RATINGS[kept])
    assert_alike(completer, ignorant, LABELS.filter(kept).head(30))


def test_cells_that_came_by_an_update_are_forgotten_too():
    completer = Completer("pretrained").fit(LABELS, RATINGS)
    completer.update([("newcomer", "Heat"), (MEMBER, "a new film")], [5, 1])
    completer.forget_cells([(MEMBER, "a new film")])
    frame = pl.DataFrame({"member": ["newcomer"], "film": ["Heat"]})
    whole = Completer("pretrained").fit(pl.concat([LABELS, frame]), np.r_[RATINGS, 5])
    assert_alike(completer, whole, ASKED)
    completer.forget("newcomer")
    assert_alike(completer, Completer("pretrained").fit(LABELS, RATINGS), ASKED)


def test_members_and_levels_that_only_forgotten_cells_had_go_with_them():
    cells = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "x"), ("c", "z")]
    completer = Completer("bias").fit(cells, [1, 2, 2, 3, 3, 5])
    assert completer.levels_ == (1, 2, 3, 4, 5)
    completer.forget_cells([("c", "z")])
    assert completer.table_.vocabularies[1].labels.to_list() == ["x", "y"]
    assert completer.levels_ == (1, 2, 3)
    completer.forget_cells(pl.DataFrame({"u": ["c"], "f": ["x"]}))
    assert completer.table_.vocabularies[0].labels.to_list() == ["a", "b"]
    assert len(completer.table_) == 4


def test_a_row_to_be_predicted_keeps_its_members():
    frame = pl.DataFrame(
        {"u": ["a", "a", "b", "c"], "f": ["x", "y", "x", "y"], "r": [1, 2, 3, None]}
    )
    completer = Completer("bias").fit(frame).forget_cells([("a", "y")])
    assert completer.table_.vocabularies[0].labels.to_list() == ["a", "b", "c"]
    assert completer.table_.vocabularies[1].labels.to_list() == ["x", "y"]
    assert len(completer.table_.values) == 3
    assert completer.forget("c").table_.vocabularies[1].labels.to_list() == ["x"]


@pytest.mark.parametrize("numbers", [False, True])
def test_features_of_a_forgotten_member_go_too(numbers):
    generator = np.random.default_rng(0)
    kinds = [f"kind {k}" for k in generator.integers(0, 3, len(USERS))]
    kinds[3], kinds[5] = "the only astronaut", None
    lists = ["a|b" if k % 2 else "b" for k in range(len(USERS))]
    traits = USERS.drop("trait").with_columns(job=pl.Series(kinds), lists=pl.Series(lists))
    if numbers:
        days = pl.Series(np.arange(len(USERS))).cast(pl.Date)
        traits = traits.with_columns(USERS["trait"], born=days.shuffle(seed=0))
        traits[7, "trait"] = None
    films = FILMS if numbers else FILMS.select("film", kind=pl.col("kind").gt(0))
    features = {"user": traits, "film": films}
    completer = Completer("pretrained", scale="real").fit(CELLS, VALUES, features=features)
    completer.forget("u03")
    kept = np.flatnonzero((CELLS["user"] != "u03").to_numpy())
    features["user"] = traits.filter(pl.col("user") != "u03")
    ignorant = Completer("pretrained", scale="real").fit(
        CELLS[kept], VALUES[kept], features=features
    )
    asked = CELLS[kept].head(60)
    assert_alike(completer, ignorant, asked)
    assert completer.fitted_.features.names == ignorant.fitted_.features.names
    assert "the only astronaut" not in str(completer.fitted_.features.names)


def forget_one(features, without, tmp_path):
    """Return a completer that forgot a user, another that was saved before, and one without it."""
    completer = Completer("pretrained", scale="real").fit(CELLS, VALUES, features=features)
    completer.save(tmp_path / "kept")
    loaded = Completer.load(tmp_path / "kept").forget("u03")
    kept = np.flatnonzero((CELLS["user"] != "u03").to_numpy())
    ignorant = Completer("pretrained", scale="real").fit(
        CELLS[kept], VALUES[kept], features=without
    )
    return completer.forget("u03"), loaded, ignorant, CELLS[kept].head(60)


def test_a_number_at_the_mean_of_its_column_is_not_a_missing_one(tmp_path):
    strong = USERS["trait"].to_numpy() - USERS["trait"].mean()
    strong[4], strong[5] = 0.0, strong[5] + strong[4]
    large = pl.Series([None if k == 8 else 1e6 + 1e3 * t for k, t in enumerate(strong)])
    features = {"user": USERS.with_columns(trait=pl.Series(strong), large=large)}
    without = {"user": features["user"].filter(pl.col("user") != "u03")}
    *forgetful, ignorant, asked = forget_one(features, without, tmp_path)
    for completer in forgetful:
        assert_alike(completer, ignorant, asked)


def test_similarities_of_the_other_members_stay(tmp_path):
    labels = sorted(set(CELLS["user"]))
    trait = USERS.sort("user")["trait"].to_numpy()
    alike = np.exp(-(np.subtract.outer(trait, trait) ** 2))
    frame = pl.DataFrame({"user": labels} | {u: alike[k] for k, u in enumerate(labels)})
    without = frame.filter(pl.col("user") != "u03").drop("u03")
    *forgetful, ignorant, asked = forget_one({"user": frame}, {"user": without}, tmp_path)
    for completer in forgetful:
        assert_alike(completer, ignorant, asked)


def test_features_that_came_by_an_update_are_forgotten_too():
    completer = Completer("pretrained", scale="real").fit(CELLS, VALUES, features={"user": USERS})
    rows = pl.DataFrame({"id": ["u98", "u99"], "trait": ["1.5", None], "other": [1, 2]})
    completer.update([("u98", "f03"), ("u99", "f04")], [1.0, 2.0], features={"user": rows})
    completer.forget("u98")
    cells = pl.concat([CELLS, pl.DataFrame({"user": ["u99"], "film": ["f04"]})])
    users = pl.concat([USERS, pl.DataFrame({"user": ["u99"], "trait": [None]},
                                           schema_overrides={"trait": pl.Float64})])  # fmt: skip
    ignorant = Completer("pretrained", scale="real").fit(
        cells, np.r_[VALUES, 2.0], features={"user": users}
    )
    assert_alike(completer, ignorant, CELLS.head(60))


def test_times_of_other_cells_stay():
    index, values, times = timed_table()
    completer = Completer("pretrained", scale="real").fit(index, values, times=times).forget(7)
    kept = index[:, 0] != 7
    ignorant = Completer("pretrained", scale="real").fit(
        index[kept], values[kept], times=times[kept]
    )
    assert_alike(completer, ignorant, index[kept][:50], times=times[kept][:50])


def folder_bytes(folder):
    """All files of a folder, and what is compressed in some of them."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    labels = [pl.read_parquet(path).write_csv() for path in files if path.suffix == ".parquet"]
    return b"".join(path.read_bytes() for path in files) + "".join(labels).encode()


@pytest.mark.parametrize("model", ["pretrained", "vmf"])
def test_a_saved_completer_has_nothing_of_the_label(tmp_path, model):
    label = "Xq7-Wj9-Zk3 of nowhere"
    extra = pl.DataFrame({"member": [label] * 3, "film": ["Heat", "Alien", "Vg8-Yp2 the film"]})
    completer = Completer(model).fit(pl.concat([LABELS, extra]), np.r_[RATINGS, 5, 1, 3])
    completer.save(tmp_path / "before")
    completer.forget(label)
    assert label not in completer.table_.vocabularies[0].labels
    completer.save(tmp_path / "after")
    for text in (b"Xq7-Wj9-Zk3", b"Vg8-Yp2"):
        assert text in folder_bytes(tmp_path / "before")
        assert text not in folder_bytes(tmp_path / "after")
    np.testing.assert_allclose(
        Completer.load(tmp_path / "after").predict(ASKED), completer.predict(ASKED), atol=1e-9
    )


def test_what_cannot_be_forgotten_is_one_line():
    completer = Completer("bias").fit(FRAME.select("member", "film"), RATINGS)
    table = completer.table_
    for member, message in [
        ("nobody", "member must be known, but 'nobody' is not"),
        ([MEMBER, "nobody"], "member must be known, but 'nobody' is not"),
        ([], "one member or more is needed, but there is none"),
        (None, "the member must have a label, but is None"),
        ({MEMBER: 1}, "must be one label"),
        (LABELS["member"].unique().to_list(), "cells with a value are needed, but the table has"),
    ]:
        with pytest.raises(InputError, match=message):
            completer.forget(member)
    with pytest.raises(InputError, match="axis must be one of member, film"):
        completer.forget(MEMBER, axis="studio")
    for cells, message in [
        ([(MEMBER, "nothing")], "every cell must be in the table, but that of row 1 is not"),
        ([], "cells are needed, but none came"),
        (LABELS, "cells with a value are needed, but the table has none"),
    ]:
        with pytest.raises(InputError, match=message):
            completer.forget_cells(cells)
    assert completer.table_ is table
