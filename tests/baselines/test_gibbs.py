"""Gibbs sampling draws from the conditional distributions of its model."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from tests.support.baselines import baseline, model, planted, random_posterior

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import (
    BayesianFactorization,
)
from exchangeable.baselines.gibbs import draw_hyperparameters, draw_noise, draw_vectors
from exchangeable.errors import InputError
from exchangeable.sums.member_sums import MemberSums


def test_draws_repeat_with_the_seed_and_differ_without():
    index, values = planted((20, 15))
    chosen = baseline("bmf")
    first, again, other = (
        replace(chosen, seed=seed).fit(Cells(index, values, (20, 15))).predict(index)[0]
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_vectors_are_drawn_from_their_ridge_regression():
    shape, rank, noise = (2, 4, 3), 2, 0.4
    index = np.array(list(product(*map(range, shape))))[::2]
    values = np.random.default_rng(0).standard_normal(len(index))
    given = random_posterior(shape, rank)
    prior = np.array([0.5, -1.0, 1.0, 0.0, 2.0]), np.diag([1.0, 2, 3, 4, 5]) + 0.5
    generator = np.random.default_rng(1)
    drawn = np.array(
        [
            draw_vectors(
                given.layout,
                MemberSums.of(torch.from_numpy(index), 0, 2),
                torch.from_numpy(values),
                given.means,
                prior,
                noise,
                generator,
            )[1].numpy()
            for _ in range(2000)
        ]
    )
    features, rests = [], []
    for cell in index[index[:, 0] == 1]:
        vectors = [given.means[d][cell[d]].numpy() for d in (1, 2)]
        rest = model([np.zeros(5), *vectors], rank)
        features.append([model([step, *vectors], rank) - rest for step in np.eye(5)])
        rests.append(rest)
    features, target = np.array(features), values[index[:, 0] == 1] - np.array(rests)
    covariance = np.linalg.inv(prior[1] + features.T @ features / noise)
    mean = covariance @ (prior[1] @ prior[0] + features.T @ target / noise)
    error = np.sqrt(np.diag(covariance) / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - mean) < 4 * error).all()
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.1 * covariance.max())


def test_priors_are_drawn_from_a_normal_wishart():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 3)) @ np.diag([1.0, 0.5, 0.2]) + [1.0, 0.0, -1.0]
    drawn = [draw_hyperparameters(vectors, generator) for _ in range(4000)]
    centre = vectors.mean(axis=0)
    scatter = np.eye(3) + 39 * np.cov(vectors.T) + 80 / 42 * np.outer(centre, centre)
    expected = 43 * np.linalg.inv(scatter)  # degrees of freedom times scale
    precision = np.mean([own for _, own in drawn], axis=0)
    np.testing.assert_allclose(precision, expected, atol=0.02 * expected.max())
    means = np.array([own for own, _ in drawn])
    np.testing.assert_allclose(means.mean(axis=0), 40 / 42 * centre, atol=0.02)
    # A multivariate t: scatter over the members with pull, and over the degrees less dimensions.
    np.testing.assert_allclose(np.cov(means.T), scatter / 42 / (43 - 3 - 1), atol=0.005)


def test_the_noise_is_drawn_about_the_errors():
    generator = np.random.default_rng(0)
    drawn = [draw_noise(torch.full((200,), 2.0), generator) for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(4.0, rel=0.02)
    assert np.std(drawn) == pytest.approx(4.0 * np.sqrt(2 / 200), rel=0.1)


def test_more_burn_in_than_sweeps_is_refused():
    with pytest.raises(InputError, match="burn_in must be from 0 to below sweeps=10, but is 10"):
        BayesianFactorization(sweeps=10, burn_in=10)
