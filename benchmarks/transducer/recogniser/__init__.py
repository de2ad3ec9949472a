"""A study of the recogniser of examples/recognise_speech.py: errors, cost of training, decoding.

`python -m benchmarks.transducer.recogniser.study` runs all of it on a GPU.
"""

import sys
from pathlib import Path

EXAMPLES = str(Path(__file__).resolve().parents[3] / "examples")
if EXAMPLES not in sys.path:
    sys.path.append(EXAMPLES)
