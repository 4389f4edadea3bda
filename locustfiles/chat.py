"""Chat traffic: locust -f locustfiles/chat.py [--scenario scenarios/chat.yaml] -H http://host:8000"""

from tokenswarm import plugin, users

plugin.install("chat")


class ChatUser(users.ChatUser):
    abstract = False
