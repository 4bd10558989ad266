"""Archives of stores in object storage: pushed, listed, verified, pruned, and pulled again."""
