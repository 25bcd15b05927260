"""The optimisation ladders: every step beside the production operator and PyTorch."""
