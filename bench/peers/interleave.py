"""Times two workers in turns, so that both meet the same machine: our round, both asleep, the peer's round, and so on.

A worker is a process that stays up, and for each line on its stdin (a number of runs) measures that many and prints one
JSON object on one line.
"""
import json
import statistics
import subprocess
import time

SLEEP_S = 0.03  # between rounds: the pools of both sides have gone to sleep by then


class Worker:
    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self, runs):
        try:
            self.process.stdin.write(f"{runs}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SystemExit(f"{self.command[0]} ended with {self.process.wait()}")
        return json.loads(line)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


def compare(ours, peer, field, rounds, runs):
    """Medians of `field` over the rounds, their ratio ours / peer, and how far the rounds' ratios lie apart."""
    workers = [Worker(ours), Worker(peer)]
    try:
        samples = ([], [])
        for worker in workers:  # the first round of each loads and warms up
            worker.round(runs)
        for _ in range(rounds):
            for worker, values in zip(workers, samples):
                time.sleep(SLEEP_S)
                values.append(worker.round(runs)[field])
    finally:
        for worker in workers:
            worker.close()
    mine, theirs = (statistics.median(values) for values in samples)
    ratios = sorted(a / b for a, b in zip(*samples))
    return {"ours": mine, "peer": theirs, "ratio": mine / theirs, "rounds": rounds, "spread": ratios[-1] / ratios[0]}
