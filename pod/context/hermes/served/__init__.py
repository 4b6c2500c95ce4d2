"""Files that run under the names of Hermes modules. Do not import them from here."""
