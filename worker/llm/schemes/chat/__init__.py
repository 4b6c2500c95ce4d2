"""Chat Completions: OpenAI's, and that of the servers that speak it their own way."""
