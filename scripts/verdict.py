#!/usr/bin/env python3
"""Reads the events of `go test -json` and says what a person wants to know: each
package's verdict, all output of what failed, and the counts. A skipped test counts as
failed: where this runs, nothing may be skipped.

    go test -json ./... | scripts/verdict.py LOG

LOG gets the whole output.
"""

import collections
import json
import sys


def main(log_path):
    output = collections.defaultdict(list)  # by package and test
    tests = collections.Counter()
    benchmarks = 0
    skipped = []
    failed_packages = []
    with open(log_path, "w", encoding="utf-8", errors="surrogateescape") as log:
        for line in sys.stdin:
            try:
                event = json.loads(line)
            except ValueError:
                log.write(line)
                print(line, end="")
                continue
            action = event["Action"]
            package, test = event.get("Package", ""), event.get("Test", "")
            text = event.get("Output", "")
            log.write(text)
            if action == "build-output":
                print(text, end="")
            elif action == "output":
                output[package, test].append(text)
                if test == "" and text.startswith("ok "):
                    print(text, end="", flush=True)
                benchmarks += "ns/op" in text
            elif action in ("pass", "fail", "skip"):
                if test:
                    tests[action] += 1
                    if action == "skip":
                        skipped.append(f"{package} {test}")
                    if action == "fail":
                        print("".join(output[package, test]), end="", flush=True)
                elif action == "fail":
                    failed_packages.append(package)
                    print("".join(output[package, ""]), end="", flush=True)
                output.pop((package, test), None)
    for name in skipped:
        print(f"skipped: {name}")
    for package in failed_packages:
        print(f"failed: {package}")
    if benchmarks:
        print(f"{benchmarks} benchmarks ran")
    if tests:
        print(f"{tests['pass']} passed, {tests['fail']} failed, {tests['skip']} skipped")
    if not tests and not benchmarks:
        print("nothing ran")
        return 1
    return 1 if skipped or failed_packages or tests["fail"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
