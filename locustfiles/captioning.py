"""Captions of images: locust -f locustfiles/captioning.py [--scenario scenarios/captioning.yaml] -H http://host:8000"""

from tokenswarm import plugin, users

plugin.install("captioning")


class CaptionUser(users.CaptionUser):
    abstract = False
