"""Reading: what a store holds, a plan of queue ranges, scans into Arrow batches, and watching queues grow."""
