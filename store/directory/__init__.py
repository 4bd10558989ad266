"""Store directory: its layout, file sizes, store id, and the JSON documents of RocketMQ's ``ConfigManager``."""
