"""What every benchmark uses: times, ceilings, peers, operands, and the classes of a case and of its result."""
