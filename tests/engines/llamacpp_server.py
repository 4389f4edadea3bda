"""Run by the Python of ``.engines/llamacpp``: llama.cpp's own HTTP server, in this process.

Usage: llamacpp_server.py MODEL.gguf. Prints its URL when it is ready; ends when its standard input does, so that it
never outlives the tests.
"""

import sys

import xllamacpp

SLOTS = 8
SLOT_TOKENS = 1024


def settings(model: str) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * SLOT_TOKENS
    params.use_jinja = True
    params.endpoint_metrics = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # the other core is Locust's
    return params


if __name__ == "__main__":
    server = xllamacpp.Server(settings(sys.argv[1]))
    print(server.listening_address, flush=True)
    sys.stdin.read()
