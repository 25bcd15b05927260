"""The float64 references of operators, for benchmarks and for the cases of tests."""
