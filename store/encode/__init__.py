"""Encoding: messages and Arrow batches checked by RocketMQ's rules and laid out as CommitLog records."""
