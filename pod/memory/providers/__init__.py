"""The memory providers that come with podworker, one package each."""
