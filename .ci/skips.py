"""Fails when a test was skipped for a reason that this machine does not have to accept."""

import sys
import xml.etree.ElementTree as ET

ALLOWED = (
    # (part of the reason, why it is accepted)
    ("vLLM is not installed", "needs a CPU build of torch"),
    ("could not import 'datasets'", "a large package that only images.hub needs"),
    ("no IPv6 loopback", "a kernel without IPv6"),
    ("no Chromium, and no root", "a browser that cannot be installed"),
    ("network namespaces need root", "a machine that is not the tests' own"),
)


def main(report: str) -> int:
    skipped = [
        (f"{case.get('classname')}::{case.get('name')}", skip.get("message") or "no reason")
        for case in ET.parse(report).iter("testcase")
        for skip in case.iter("skipped")
    ]
    surprises = [(name, reason) for name, reason in skipped if not any(part in reason for part, _ in ALLOWED)]
    for name, reason in surprises:
        print(f"skipped without leave: {name}: {reason}")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
