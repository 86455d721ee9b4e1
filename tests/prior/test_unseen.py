"""Weights of features without a member are those of a fit without it."""

import torch

from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.regression import Block, Regression
from exchangeable.prior.unseen import without_own_cells


def test_what_features_say_of_a_member_was_learned_without_it():
    torch.manual_seed(0)
    members, width = 20, 1
    x = torch.randn(members + 2, 3, dtype=torch.float64)
    x[-2:] = 0
    blocks = (Block(1, 0.1, uncertain=False), Block(2, 0.1, uncertain=True))
    means = torch.randn(members + 2, width, dtype=torch.float64)
    precisions = torch.tensor([3.0], dtype=torch.float64)

    def solved(kept):
        regression = Regression.initial(x, blocks, width)
        regression.precisions = torch.tensor([[2.0], [0.7]], dtype=torch.float64)
        gram, towards = x[kept].T @ x[kept], x[kept].T @ means[kept]
        ridge = torch.tensor([2.0, 0.7, 0.7], dtype=torch.float64).diag()
        regression.covariances = torch.linalg.inv(precisions * gram + ridge)[None]
        regression.weights = regression.covariances[0] @ (precisions * towards)
        return regression

    like = torch.zeros(1, dtype=torch.float64)
    posterior = Posterior.initial((members + 1, 1), like)
    posterior.means[0] = means.clone()
    posterior.means[0][-2] = 0.3
    posterior.precisions[0] = precisions
    posterior.regressions = [solved(torch.arange(members))] * 2
    left_out = torch.tensor([4, 11])
    found = without_own_cells(posterior, 0, left_out)
    for member in left_out.tolist():
        others = torch.tensor([n for n in range(members) if n != member])
        without = solved(others)
        own = x[member, 1:] @ without.weights[1:]
        torch.testing.assert_close(found.means[0][member], 0.3 + own)
        spread = posterior.covariances[0][-2] + without.variances(torch.tensor([member]))
        torch.testing.assert_close(found.covariances[0][member], spread)
    torch.testing.assert_close(found.means[0][:4], posterior.means[0][:4])
