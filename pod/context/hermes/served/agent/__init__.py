"""The part of Hermes's `agent` package that context engines need."""
