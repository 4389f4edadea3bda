"""Agents at work: locust -f locustfiles/agentic.py [--scenario scenarios/agentic.yaml] -H http://host:8000"""

from tokenswarm import plugin, users

plugin.install("agentic")


class AgentUser(users.AgentUser):
    abstract = False
