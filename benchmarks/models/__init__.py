"""Real models with and without ``torch_ops.override()``, and drop-in replacements of packages."""
