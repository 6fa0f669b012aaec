#!/usr/bin/env python3
"""Does the ledger of a request say where its time went? Measures it; asserts nothing.

  tools/ledger_proof.py --ridge build/release/bin/ridge -m smollm2:135m

A server with a sleep in one stage (ridge serve --plant-sleep) and one without answer streamed requests in turn (A B B A). Told for each stage: how much longer the server says that
this stage took, and the one of the others that moved most; medians, in ms. "network": a proxy that waits before it passes the request on, so that no stage of the server is slower, only
the client's time. Beside that: how far the ledger's sum is from the time that the client measured, of the requests without a proxy, as the share within 1 % or 0.2 ms and as percentiles.
What of that is the client's own is told by the kernel's stamps: from the client's clock to the request's leaving it, and from the answer's arrival in its socket to the client's reading.
The third line is the rest, from stamp to stamp. Above 0 it is time of the server that the ledger does not name; below 0 the answer was there before the server, without a processor, looked at the clock.
"""
import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

STAGES = ["receive", "tokenize", "queue", "prefill", "decode", "sample", "detokenize", "deliver", "write"]
SO_TIMESTAMPING, STAMPS = 37, 2 | 8 | 16 | 2048  # software stamps of what is sent and what comes, without the data
PROMPT, TOKENS = "Water is taken for granted where it comes out of a tap.", 4


class Server:
    def __init__(self, options, planted=None):
        command = [options.ridge, "serve", "-m", options.model, "--port", "0", "--json", "-np", "1", "-c", "512", "--no-prefix-cache", "--spec", "off"]
        if options.threads:
            command += ["-t", str(options.threads)]
        if planted:
            command += ["--plant-sleep", planted]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = ""
        while not text.endswith("\n}\n"):
            line = self.child.stdout.readline()
            if not line:
                sys.exit(f"the server ended early: {' '.join(command)}")
            text += line
        self.port = int(json.loads(text)["url"].rsplit(":", 1)[1])
        self.link = None

    def close(self):
        self.child.terminate()
        self.child.wait()


class Proxy:
    """Passes bytes on, those of requests after a wait."""

    def __init__(self, port, wait_s):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.to, self.wait_s, self.link = self.listener.getsockname()[1], port, wait_s, None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.move, args=(client, server, self.wait_s), daemon=True).start()
            threading.Thread(target=self.move, args=(server, client, 0), daemon=True).start()

    @staticmethod
    def move(source, to, wait_s):
        while data := source.recv(1 << 16):
            if wait_s:
                time.sleep(wait_s)
            to.sendall(data)


def stamp(ancillary):
    for _, kind, data in ancillary:
        if kind == SO_TIMESTAMPING:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds + 1e-9 * nanoseconds
    return None


def clock():  # that of the stamps
    return time.clock_gettime(time.CLOCK_REALTIME)


def ask(server, tokens):
    """(ms until the first text, the server's ledger, ms of the former that the client itself took or None)"""
    if server.link is None:
        server.link = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        server.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, STAMPS)
    body = json.dumps({"prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}).encode()
    message = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    begin = clock()
    server.link.sendall(message)
    got, first, came, left = b"", None, None, None
    while not got.endswith(b"0\r\n\r\n"):
        piece, ancillary, _, _ = server.link.recvmsg(1 << 16, 512)
        now = clock()
        if not piece:
            sys.exit(f"the stream ended early: {got[-200:]!r}")
        got += piece
        if first is None and b'"text":"' in got:
            first, came = now, stamp(ancillary)
    ledger = None
    for line in got.split(b"\n"):
        if line.startswith(b"data: {") and b'"ridge"' in line:
            ledger = json.loads(line[6:])["ridge"]
    try:
        left = stamp(server.link.recvmsg(1, 512, socket.MSG_ERRQUEUE)[1])
    except BlockingIOError:
        pass
    own = 1000 * (left - begin + first - came) if left and came else None
    return 1000 * (first - begin), ledger, own


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p / 100 * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridge", default="build/release/bin/ridge")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--ms", type=float, default=5.0, help="of the sleep")
    parser.add_argument("--pairs", type=int, default=20, help="A B B A of each stage")
    parser.add_argument("--stages", default=",".join([*STAGES, "network"]))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.ridge = os.path.abspath(options.ridge)
    plain = Server(options)
    rows, apart = [], []
    for stage in options.stages.split(","):
        slow = Proxy(plain.port, options.ms / 1000) if stage == "network" else Server(options, f"{stage}={options.ms:g}")
        seen = {False: [], True: []}
        for _ in range(3):
            ask(plain, TOKENS), ask(slow, TOKENS)
        for _ in range(options.pairs):
            for is_slow in (False, True, True, False):
                client, ledger, own = ask(slow if is_slow else plain, TOKENS)
                parts, total = ledger["first_text_parts_ms"], ledger["first_text_ms"]
                assert abs(sum(v for v in parts.values() if v is not None) - total) < 1e-6 * max(1, total)
                if not (stage == "network" and is_slow):
                    apart.append((client - total, client, own))
                # The first token of this answer is text, so no step behind it is part of the time to the first text: of the whole answer then.
                parts = {k: v or 0 for k, v in parts.items()} | {"decode": ledger["predicted_ms"] / ledger["decode_steps"]}
                parts["network"] = client - total
                seen[is_slow].append(parts)
        more = {k: statistics.median(p[k] for p in seen[True]) - statistics.median(p[k] for p in seen[False]) for k in seen[True][0]}
        others = {k: v for k, v in more.items() if k != stage}
        most = max(others, key=lambda k: abs(others[k]))
        rows.append({"stage": stage, "planted_ms": options.ms, "attributed_ms": more[stage], "ratio": more[stage] / options.ms, "other": most, "other_ms": others[most]})
        if isinstance(slow, Server):
            slow.close()
    plain.close()
    if isinstance(slow, Proxy):
        slow.listener.close()
    known = [(gap - own, client) for gap, client, own in apart if own is not None]

    def spread(pairs):
        return {"requests": len(pairs), "within": sum(abs(gap) <= max(0.2, 0.01 * client) for gap, client in pairs) / len(pairs), "ms": {f"p{p}": percentile([gap for gap, _ in pairs], p) for p in (1, 50, 90, 99)}} if pairs else None

    summary = {"client_ms_p50": percentile([client for _, client, _ in apart], 50), "client_minus_ledger": spread([(gap, client) for gap, client, _ in apart]),
               "clients_own_ms": {f"p{p}": percentile([own for _, _, own in apart if own is not None], p) for p in (50, 90, 99)} if known else None, "stamp_to_stamp_minus_ledger": spread(known)}
    if options.json:
        print(json.dumps({"stages": rows, "sum": summary}, indent=1))
        return
    print(f"{'stage':<12}{'planted':>9}{'found':>9}{'ratio':>8}   most of the others")
    for r in rows:
        print(f"{r['stage']:<12}{r['planted_ms']:>9.2f}{r['attributed_ms']:>9.2f}{r['ratio']:>8.3f}   {r['other']} {r['other_ms']:+.2f}")

    def line(name, d):
        print(f"{name}: within 1 % or 0.2 ms {100 * d['within']:.1f} % of {d['requests']}; " + ", ".join(f"{k} {v:.3f} ms" for k, v in d["ms"].items()))

    print(f"the client's time to the first text: p50 {summary['client_ms_p50']:.1f} ms")
    line("the client's time less the ledger's sum", summary["client_minus_ledger"])
    if known:
        print("of that the client's own: " + ", ".join(f"{k} {v:.3f} ms" for k, v in summary["clients_own_ms"].items()))
        line("from kernel's stamp to kernel's stamp less the ledger's sum", summary["stamp_to_stamp_minus_ledger"])
    else:
        print("what of that is the client's own is not known: the kernel gives no stamps")


if __name__ == "__main__":
    main()
