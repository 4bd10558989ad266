"""Pure codecs: bytes to numpy and Arrow, and back. No files, no clock, no locks."""
