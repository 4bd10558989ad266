"""Set-up: finding Java and Python for Spark, and the checks that `doctor` prints."""
