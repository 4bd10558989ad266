"""Object stores: S3 and others, read through ranges and a cache on local disk."""
