"""The recurrent operator: the LSTM with soft and hard activations."""
