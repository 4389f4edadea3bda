"""For all tests."""

import signal

import hypothesis

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Programs started in the background ignore SIGINT, and so would every Locust under test: with a handler here, the
    # programs that the tests start get the default back.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("busy", deadline=None)  # how long a case takes says nothing on a busy machine
hypothesis.settings.load_profile("busy")
