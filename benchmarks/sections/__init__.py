"""Sections, a module for each kind; a section is a function that takes a `Bench` and returns results."""
