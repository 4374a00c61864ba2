"""Training steps in PyTorch, timed in windows.

Prints {"ready": true}, or {"missing": "torch"}; then for each line of stdin, which is a number of
steps, {"step_ms": ...}: the time of a step, of so many. A transformer of a size that a small GPU
holds; the interpreter that runs this need have nothing of this project.
"""

import json
import sys
import time

WARM_UP = 20
BATCH, LENGTH, WIDTH = 16, 256, 512


def trainer(torch):
    """A function that does so many steps, and waits for the last."""
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            torch.cuda.synchronize()

    return train


def main() -> None:
    try:
        import torch
    except ImportError:
        print(json.dumps({"missing": "torch"}))
        return
    train = trainer(torch)
    train(WARM_UP)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        steps = int(line)
        begin = time.perf_counter()
        train(steps)
        step_ms = (time.perf_counter() - begin) * 1e3 / steps
        print(json.dumps({"step_ms": step_ms}), flush=True)


if __name__ == "__main__":
    main()
