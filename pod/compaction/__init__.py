"""Prune and Compact: when, what, how checked, how committed."""
