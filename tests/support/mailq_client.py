"""A client of the mailq protocol, version 2."""

import hashlib
import socket

import sluice


class Client:
    """One session."""

    def __init__(self, address):
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        self.socket = socket.socket(family)
        self.socket.settimeout(sluice.PATIENCE)
        self.socket.connect(address)
        self.file = self.socket.makefile("rwb")

    def close(self):
        self.file.close()
        self.socket.close()

    def line(self):
        return self.file.readline().decode()

    def say(self, line):
        self.file.write(line.encode() + b"\n")
        self.file.flush()

    def ask(self, line):
        """The answer, or the lines of a list."""
        self.say(line)
        answer = self.line()
        if not answer.startswith("+OK until"):
            return answer
        lines = []
        while (one := self.line()) != ".\n":
            if one == "":
                raise EOFError("the list has no end")
            lines.append(one[1:] if one.startswith(".") else one)
        return lines

    def login(self, user, password):
        greeting, challenge = self.line(), self.line()
        assert greeting == "version zmailer 2.0\n", greeting
        proof = hashlib.md5(challenge.rstrip("\n").encode() + password.encode()).hexdigest()
        return self.ask("AUTH %s %s" % (user, proof))
