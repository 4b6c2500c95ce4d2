"""`tools`: of Hermes's own tools there is nothing here but what their answers look like."""
