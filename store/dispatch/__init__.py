"""Dispatch: the queue entries and index keys that follow from the records of the CommitLog (`ReputMessageService`)."""
