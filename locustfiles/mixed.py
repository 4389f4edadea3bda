"""All traffic of a scenario, of whatever kind: locust -f locustfiles/mixed.py --scenario FILE -H http://host:8000"""

from tokenswarm import plugin, users

plugin.install()


class MixedUser(users.ScenarioUser):
    abstract = False
