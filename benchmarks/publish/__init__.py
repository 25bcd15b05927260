"""Pages and plots from committed results, and the command that measures all of these."""
