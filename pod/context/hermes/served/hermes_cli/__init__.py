"""The part of Hermes's `hermes_cli` package that context engines need."""
