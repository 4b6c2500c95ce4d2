"""Google's streamGenerateContent."""
