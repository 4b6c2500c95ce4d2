"""The part of Hermes's `gateway` package that context engines ask of a session."""
