"""For all tests."""

import signal

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Programs started in the background ignore SIGINT, and so would every Locust under test: with a handler here, the
    # programs that the tests start get the default back.
    signal.signal(signal.SIGINT, signal.default_int_handler)
