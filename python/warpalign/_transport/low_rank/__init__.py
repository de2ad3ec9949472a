"""Transport plans of low rank, and the solvers that find them in linear memory."""
