"""What the benchmarks of all operators share: result files, timing, tables, and how a suite is described."""
