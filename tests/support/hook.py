"""A receiver of web hooks: an HTTP server that a test may have answer what it likes."""

import hashlib
import hmac
import http.server
import json
import ssl
import threading


class Receiver:
    """`answer(call)` is a status, "hang", "flood", or a dict of fields with a redirect. What came is in `calls`:
    dicts with fields (names in lower case), body, path; what it took with 2xx is in `events`, in order."""

    def __init__(self, secret, certificate=None, answer=lambda call: 200):
        self.secret, self.answer, self.calls, self.events = secret, answer, [], []
        self.wrong = []  # signatures
        self.closed = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                receiver.take(self)

            def do_GET(self):
                receiver.wrong.append("GET " + self.path)

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args):
                pass

            def finish_request(self, request, address):
                if certificate:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(certificate)
                    with context.wrap_socket(request, server_side=True) as request:
                        super().finish_request(request, address)
                else:
                    super().finish_request(request, address)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def url(self, host="localhost", tls=True):
        return "http%s://%s:%d/hook?x=1" % ("s" if tls else "", host, self.port)

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        call = {"fields": {k.lower(): v for k, v in handler.headers.items()}, "body": body, "path": handler.path}
        time, sum_ = (part.split("=", 1)[1] for part in call["fields"]["sluice-signature"].split(","))
        if not hmac.compare_digest(hmac.new(self.secret.encode(), time.encode() + b"." + body, hashlib.sha256).hexdigest(), sum_):
            self.wrong.append(call)
        call["json"] = json.loads(body)
        self.calls.append(call)
        answer = self.answer(call)
        if answer == "hang":
            self.closed.wait()
            return
        if answer == "flood":
            handler.send_response(200)
            handler.end_headers()
            try:
                while not self.closed.is_set():
                    handler.wfile.write(b"x" * 65536)
            except OSError:
                pass
            return
        if isinstance(answer, dict):
            handler.send_response(302)
            for name, value in answer.items():
                handler.send_header(name, value)
        else:
            if answer // 100 == 2:
                self.events += call["json"]["events"]
            handler.send_response(answer)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def numbers(self):
        return [e["number"] for e in self.events]

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
