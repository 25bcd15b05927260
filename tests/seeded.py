"""Random tests of the same problems every time."""

import hypothesis
from hypothesis.internal.conjecture import providers

# Hypothesis also draws the constants of all modules of this checkout that are loaded, which depend on what ran before a test.
providers.is_local_module_file = lambda file: False


def seeded(examples: int, seed: int = 0):
    """Above @given: so many problems, which depend on the seed alone. Tests say which paths theirs must reach."""
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return lambda test: hypothesis.seed(seed)(settings(test))
