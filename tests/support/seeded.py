"""Random tests whose problems are the same in every run."""

import hypothesis
from hypothesis.internal.conjecture import providers

# Hypothesis also draws constants of all loaded modules of this checkout. These depend on the tests that ran earlier, so this is
# off.
providers.is_local_module_file = lambda file: False


def seeded(examples: int, seed: int = 0):
    """A decorator above @given: runs `examples` problems that depend on the seed only. Tests assert which paths these reach."""
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return lambda test: hypothesis.seed(seed)(settings(test))
