"""One module for each provider's dialect: request to JSON, stream to events. All are pure."""
