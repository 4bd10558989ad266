"""Messages of a store sent to live brokers: their form, the connection, and the progress."""
