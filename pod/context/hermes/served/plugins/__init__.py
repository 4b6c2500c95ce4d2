"""The part of Hermes's `plugins` package that has to do with context engines."""
