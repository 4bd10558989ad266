"""Look-ups by key or id as DataFrames."""
