"""Logs of chat requests as people have them, turned into jobs in the format of ``trajectories``."""
