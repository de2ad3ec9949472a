"""Models of torch's own layers, in which the package's LSTM takes the place of torch.nn.LSTM."""

from __future__ import annotations

from torch import Tensor, nn


class Model(nn.Module):
    """Two LSTMs, one of them in a list of modules: x (B, T, 5) to (B, T, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(5, 7, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.inner = nn.ModuleList([nn.LSTM(14, 6, proj_size=3), nn.Linear(3, 1)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.encoder(x)[0]
        value: Tensor = self.inner[1](self.inner[0](y)[0])
        return value
