"""Ollama's own /api/chat."""
