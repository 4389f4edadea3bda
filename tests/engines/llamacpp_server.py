"""Run by the Python of ``.engines/llamacpp``: llama.cpp's own HTTP server, in this process.

Usage: llamacpp_server.py MODEL.gguf [--slot-tokens 1024] [--chat-template FILE]. Prints its URL when it is ready; ends
when its standard input does, so that it never outlives the tests.
"""

import argparse
import sys
from pathlib import Path

import xllamacpp

SLOTS = 8


def settings(options: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * options.slot_tokens
    params.use_jinja = True
    if options.chat_template is not None:
        params.chat_template = options.chat_template.read_text("utf-8")
    params.endpoint_metrics = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # the other core is Locust's
    return params


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--slot-tokens", type=int, default=1024)
    parser.add_argument("--chat-template", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    server = xllamacpp.Server(settings(arguments()))
    print(server.listening_address, flush=True)
    sys.stdin.read()
