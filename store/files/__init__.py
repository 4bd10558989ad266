"""Bytes on disk. `fs` is the one seam to the operating system; everything else asks it."""
