"""Changes between the database and the snapshot: what was deleted stays hidden until it is read."""

import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

from exchangeable.serve.pending import PendingChanges
from exchangeable.serve.snapshot import Change


def deletion(version, label):
    return Change(version, deleted_member=(0, label), needs_refresh=True)


def test_who_was_deleted_after_a_reading_is_named_neither_before_nor_after_it_is_taken_up():
    """A refresh that began before may end at any moment."""
    pending = PendingChanges(1)
    pending.add(deletion(2, "ann"))
    pending.take()
    pending.add(deletion(3, "bob"))  # which still waits
    assert pending.deleted_members_after(1) == {(0, "ann"), (0, "bob")}
    pending.refreshed(2)
    assert pending.deleted_members_after(2) == {(0, "bob")}
    pending.take()
    assert pending.deleted_members_after(2) == {(0, "bob")}
    pending.refreshed(3)
    assert not pending.deleted_members_after(3)
    assert not pending.need_refresh


def test_changes_are_taken_by_version_up_to_the_first_that_has_not_come():
    pending = PendingChanges(1)
    assert pending.add(Change(4))
    assert pending.add(Change(2))
    assert not pending.add(Change(2))  # the follower has brought it, too
    assert [change.version for change in pending.take()] == [2]
    assert pending.add(Change(3))
    assert [change.version for change in pending.take()] == [3, 4]
    assert not pending.add(Change(3))
    assert len(pending) == 3
    pending.included(3)
    assert len(pending) == 1
