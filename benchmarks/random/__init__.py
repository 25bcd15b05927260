"""Random problems: measured, compared with references, and used to fit the costs of paths."""
