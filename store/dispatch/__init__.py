"""Dispatch: the queue entries and index keys that follow from CommitLog records (``ReputMessageService``)."""
