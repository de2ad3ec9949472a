"""What decoders of CTC and of transducers share: training on the errors of hypotheses."""
