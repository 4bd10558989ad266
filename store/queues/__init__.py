"""ConsumeQueues: entries read and appended, queue numbers, and the search by store time."""
