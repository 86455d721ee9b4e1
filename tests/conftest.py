import pytest
import torch
from hypothesis import HealthCheck, settings

# The same cases each time: a failure that someone meets is one that everyone can repeat.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

# The tensors here are small: threads would only wait for one another, long on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
