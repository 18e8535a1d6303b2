"""A gRPC client on Python's grpcio, driven by the tests of this folder's parent.

usage: peer.py PHASE TARGET [CA CERT KEY]

The phase "calls" wants a service that answers. The phase "hanging" prints "ready", and wants Redis to hang from the
moment at which it is sent a line. Each check prints a line; the exit code tells whether one has failed.
"""

import concurrent.futures
import sys
import time

import grpc

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
OK, OVER_LIMIT = 1, 2
MOST = 4 << 20


def field(number, data):
    """A field of bytes, as protobuf has it on the wire."""
    length, head = len(data), bytearray([number << 3 | 2])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + data


def request(key, value):
    """A RateLimitRequest with one descriptor of one entry, whose value may be any bytes."""
    entry = field(1, key) + field(2, value)
    return field(1, b"interop") + field(2, field(1, entry))


def overall_code(reply):
    """The first field of a RateLimitResponse."""
    assert reply[0] == 1 << 3, reply
    return reply[1]


def same(bytes_):
    return bytes_


def check(name, got, want):
    if got != want:
        sys.exit(f"{name}: got {got}, want {want}")
    print("ok", name, flush=True)


def code_of(call, *args, **kwargs):
    try:
        return overall_code(call(*args, **kwargs))
    except grpc.RpcError as e:
        return e.code()


def well(channel):
    """Makes the connection, and asks for health."""
    health = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=same, response_deserializer=same)
    check("health", health(b"", timeout=30), b"\x08\x01")


def calls(channel):
    well(channel)
    ask = channel.unary_unary(METHOD, request_serializer=same, response_deserializer=same)
    codes = [code_of(ask, request(b"user", b"\xff\xfe\x00"), timeout=10) for _ in range(4)]
    check("bytes that are no text", codes, [OK, OK, OK, OVER_LIMIT])
    check("nearly 4 MiB", code_of(ask, request(b"free", b"v" * (MOST - 100)), timeout=10), OK)
    check("more than 4 MiB", code_of(ask, request(b"free", b"v" * MOST), timeout=10), grpc.StatusCode.RESOURCE_EXHAUSTED)
    gzip = grpc.Compression.Gzip
    check("gzip", code_of(ask, request(b"free", b"v" * 100000), timeout=10, compression=gzip), OK)
    check("no message of ours", code_of(ask, b"\x0a\x40", timeout=10), grpc.StatusCode.INVALID_ARGUMENT)
    other = channel.unary_unary("/no.Such/Method", request_serializer=same, response_deserializer=same)
    check("an unknown method", code_of(other, b"", timeout=10), grpc.StatusCode.UNIMPLEMENTED)
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        all_of = list(pool.map(lambda i: code_of(ask, request(b"free", b"%d" % i), timeout=30), range(2000)))
    check("2000 calls, 64 at once", all_of, [OK] * 2000)


def hanging(channel):
    well(channel)
    ask = channel.unary_unary(METHOD, request_serializer=same, response_deserializer=same)
    print("ready", flush=True)
    sys.stdin.readline()  # Redis hangs from now on
    waiting = [ask.future(request(b"free", b"leaving-%d" % i)) for i in range(20)]
    time.sleep(0.1)
    for call in waiting:
        call.cancel()
    # One or another may have been answered: the service finds out that Redis hangs.
    check("cancels", {call.cancelled() or overall_code(call.result()) == OK for call in waiting}, {True})
    start = time.monotonic()
    code = code_of(ask, request(b"free", b"staying"), timeout=2)
    check("an answer within the deadline", (code, time.monotonic() - start < 2), (OK, True))


def main():
    phase, target = sys.argv[1:3]
    options = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0)]
    if len(sys.argv) > 3:
        ca, cert, key = (open(path, "rb").read() for path in sys.argv[3:6])
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert), options)
    else:
        channel = grpc.insecure_channel(target, options)
    with channel:
        {"calls": calls, "hanging": hanging}[phase](channel)


main()
