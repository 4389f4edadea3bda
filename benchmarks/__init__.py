"""How fast and how truthful the load generator itself is. Run from a checkout: ``python -m benchmarks all``."""
