"""The sink: rows to messages, queue selection, staging by tasks, the commit by the driver."""
