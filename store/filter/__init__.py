"""SQL92 property filters: text to expression, expression to a mask over a batch of messages."""
