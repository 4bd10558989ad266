"""Consumer groups: their offsets, the documents that hold them, and the allocation of queues to clients."""
