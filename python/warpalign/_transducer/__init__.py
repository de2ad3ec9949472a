"""The transducer family: RNN-T, multi-blank RNN-T and TDT losses."""
