"""Tests: one folder for each package, mirroring it."""
