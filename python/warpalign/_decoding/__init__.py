"""What decoders of CTC and of transducers share: language models over labels, and training on the errors of hypotheses."""
