"""From a manifest to a running pod: what it names is loaded, and the parts are put together."""
