"""Tables of the lake as targets of a backfill: Iceberg by pyiceberg, Delta by deltalake, without a jar."""
