"""The command doctor."""

from tests.support.commands import done


def test_doctor_finds_all_well(here):
    result = done("doctor")
    assert "all checks passed" in result.output
    assert "torch" in result.output
    assert "FAIL" not in result.output
