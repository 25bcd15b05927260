"""Set-up, build and checks: what the Makefile and setup.py call."""
