"""What is trained: a small network on made-up data, by SGD with momentum, and all that its training depends on.

Everything that a resumed run needs in order to go on bit for bit is in `Training.state`: weights, momentum, learning
rate schedule, random numbers, place in the data, loss scale.
"""

import math
import random
from array import array
from collections.abc import Callable
from typing import Any

INPUTS, HIDDEN, BATCH, SAMPLES = 48, 16, 4, 48
PEAK_LR, WARM_UP, MOMENTUM, KEPT = 0.05, 4, 0.9, 0.9
GROW_EVERY = 5
COMPONENTS = ("model", "optimizer", "scheduler", "rng", "data", "scaler")

Json = dict[str, Any]
Weights = dict[str, "array[float]"]


class Training:
    """A training at some step."""

    def __init__(self, steps: int, inputs: int = INPUTS) -> None:
        """Begin at step 0, always with the same weights.

        Args:
            steps: the length of the whole training; the learning rate falls to 0 over it.
            inputs: how wide the network is: what a checkpoint of it takes.
        """
        rng = random.Random(20240607)  # noqa: S311 - repeatable on purpose
        self.steps, self.step = steps, 0
        self.weights: Weights = {}
        for unit in range(HIDDEN):
            self.weights[f"hidden.{unit}"] = array("d", [rng.gauss(0, 0.2) for _ in range(inputs)])
        self.weights["hidden.bias"] = array("d", [0.0] * HIDDEN)
        self.weights["out"] = array("d", [rng.gauss(0, 0.5) for _ in range(HIDDEN)])
        self.weights["out.bias"] = array("d", [0.0])
        self.momentum: Weights = {name: array("d", [0.0] * len(each)) for name, each in self.weights.items()}
        self.scheduled = 0
        self.rng = random.Random(7)  # noqa: S311 - likewise
        self.order = list(range(SAMPLES))
        self.epoch, self.position = 0, 0
        self.scale, self.good_steps = 1024.0, 0
        self._data = _samples(inputs)

    @property
    def lr(self) -> float:
        """The learning rate of the next step: warm-up, then a cosine."""
        done = self.scheduled
        if done < WARM_UP:
            return PEAK_LR * (done + 1) / WARM_UP
        return PEAK_LR * 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / max(1, self.steps - WARM_UP)))

    def advance(self) -> Json:
        """Train one step; return its number, loss and learning rate."""
        lr, batch = self.lr, [self._next_sample() for _ in range(BATCH)]
        gradients: Weights = {name: array("d", [0.0] * len(each)) for name, each in self.weights.items()}
        loss = sum(self._learn(inputs, wanted, gradients) for inputs, wanted in batch) / BATCH
        for name, weights in self.weights.items():
            momentum, gradient = self.momentum[name], gradients[name]
            for i in range(len(weights)):
                momentum[i] = MOMENTUM * momentum[i] + gradient[i] / self.scale / BATCH
                weights[i] -= lr * momentum[i]
        self.step, self.scheduled, self.good_steps = self.step + 1, self.scheduled + 1, self.good_steps + 1
        if self.good_steps % GROW_EVERY == 0:
            self.scale *= 2
        return {"step": self.step, "loss": loss, "lr": lr}

    def _next_sample(self) -> tuple[list[float], float]:
        if self.position == 0:
            random.Random(self.epoch).shuffle(self.order)  # noqa: S311 - likewise
        sample = self._data[self.order[self.position]]
        self.position = (self.position + 1) % SAMPLES
        self.epoch += self.position == 0
        return sample

    def _learn(self, inputs: list[float], wanted: float, gradients: Weights) -> float:
        """Add one sample's gradients, scaled; return its loss. A tenth of the hidden units is dropped at random."""
        weights, out = self.weights, self.weights["out"]
        hidden = []
        for unit in range(HIDDEN):
            total = sum(w * x for w, x in zip(weights[f"hidden.{unit}"], inputs, strict=True))
            hidden.append(math.tanh(total + weights["hidden.bias"][unit]) * (self.rng.random() < KEPT) / KEPT)
        error = sum(w * h for w, h in zip(out, hidden, strict=True)) + weights["out.bias"][0] - wanted
        scaled = 2 * error * self.scale
        gradients["out.bias"][0] += scaled
        for unit, value in enumerate(hidden):
            gradients["out"][unit] += scaled * value
            slope = scaled * out[unit] * (1 - (value * KEPT) ** 2) / KEPT if value else 0.0
            gradients["hidden.bias"][unit] += slope
            for i, x in enumerate(inputs):
                gradients[f"hidden.{unit}"][i] += slope * x
        return error * error

    # state

    def state(self) -> Json:
        """Return everything that the next step depends on, component by component."""
        version, words, gauss = self.rng.getstate()
        return {
            "model": dict(self.weights),
            "optimizer": {"lr": PEAK_LR, "momentum": dict(self.momentum)},
            "scheduler": {"last_epoch": self.scheduled, "base_lr": PEAK_LR},
            "rng": {"version": version, "state": array("q", words), "gauss": gauss},
            "data": {"epoch": self.epoch, "position": self.position, "order": array("q", self.order)},
            "scaler": {"scale": self.scale, "growth_tracker": self.good_steps},
            "step": self.step,
        }

    def restore(self, state: Json) -> None:
        """Take over what a checkpoint holds; a component that it lacks stays as at the beginning."""
        self.step = state["step"]
        for name, load in self._loaders().items():
            if name in state:
                load(state[name])

    def _loaders(self) -> dict[str, Callable[[Json], None]]:
        def optimizer(part: Json) -> None:
            self.momentum = dict(part["momentum"])

        def scheduler(part: Json) -> None:
            self.scheduled = part["last_epoch"]

        def rng(part: Json) -> None:
            self.rng.setstate((part["version"], tuple(part["state"]), part["gauss"]))

        def data(part: Json) -> None:
            self.epoch, self.position, self.order = part["epoch"], part["position"], list(part["order"])

        def scaler(part: Json) -> None:
            self.scale, self.good_steps = part["scale"], part["growth_tracker"]

        loaders = (lambda part: self.weights.update(part), optimizer, scheduler, rng, data, scaler)
        return dict(zip(COMPONENTS, loaders, strict=True))


def _samples(width: int) -> list[tuple[list[float], float]]:
    rng = random.Random(3)  # noqa: S311 - likewise
    inputs = [[rng.uniform(-1, 1) for _ in range(width)] for _ in range(SAMPLES)]
    return [(each, math.sin(sum(each[:4])) + 0.5 * each[4]) for each in inputs]
