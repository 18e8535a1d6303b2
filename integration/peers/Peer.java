import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * A gRPC client on Java's grpc-netty, driven by the tests of this folder's parent.
 *
 * <p>usage: java Peer.java PHASE TARGET [CA CERT KEY]
 *
 * <p>The phase "calls" wants a service that answers. The phase "hanging" prints "ready", and wants Redis to hang from the
 * moment at which it is sent a line. Each check prints a line; the exit code tells whether one has failed.
 */
final class Peer {
  private static final String METHOD = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
  private static final Object OK = 1;
  private static final Object OVER_LIMIT = 2;
  private static final int MOST = 4 << 20;

  private final Channel channel;

  private Peer(Channel channel) {
    this.channel = channel;
  }

  public static void main(String[] args) throws Exception {
    NettyChannelBuilder builder =
        NettyChannelBuilder.forTarget(args[1]).keepAliveTime(10, TimeUnit.SECONDS).keepAliveWithoutCalls(true);
    if (args.length > 2) {
      builder.sslContext(
          GrpcSslContexts.forClient()
              .trustManager(new File(args[2]))
              .keyManager(new File(args[3]), new File(args[4]))
              .build());
    } else {
      builder.usePlaintext();
    }
    ManagedChannel channel = builder.build();
    try {
      Peer peer = new Peer(channel);
      if (args[0].equals("calls")) {
        peer.calls();
      } else {
        peer.hanging();
      }
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
    System.exit(0);
  }

  /** Makes the connection, and asks for health. */
  private void well() {
    CallOptions soon = CallOptions.DEFAULT.withDeadlineAfter(30, TimeUnit.SECONDS);
    byte[] health = ClientCalls.blockingUnaryCall(channel, method("grpc.health.v1.Health/Check"), soon, new byte[0]);
    check("health", Arrays.toString(health), "[8, 1]");
  }

  private void calls() throws Exception {
    well();
    CallOptions soon = CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS);
    byte[] opaque = request("user", new byte[] {(byte) 0xff, (byte) 0xfe, 0});
    List<Object> codes = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      codes.add(code(METHOD, opaque, soon));
    }
    check("bytes that are no text", codes, Arrays.asList(OK, OK, OK, OVER_LIMIT));
    check("nearly 4 MiB", code(METHOD, request("free", filled(MOST - 100)), soon), OK);
    check("more than 4 MiB", code(METHOD, request("free", filled(MOST)), soon), Status.Code.RESOURCE_EXHAUSTED);
    check("gzip", code(METHOD, request("free", filled(100_000)), soon.withCompression("gzip")), OK);
    check("no message of ours", code(METHOD, new byte[] {0x0a, 0x40}, soon), Status.Code.INVALID_ARGUMENT);
    check("an unknown method", code("no.Such/Method", new byte[0], soon), Status.Code.UNIMPLEMENTED);
    ExecutorService pool = Executors.newFixedThreadPool(64);
    List<Callable<Object>> tasks = new ArrayList<>();
    for (int i = 0; i < 5000; i++) {
      byte[] message = request("free", Integer.toString(i).getBytes());
      tasks.add(() -> code(METHOD, message, soon));
    }
    codes.clear();
    for (Future<Object> done : pool.invokeAll(tasks)) {
      codes.add(done.get());
    }
    pool.shutdown();
    check("5000 calls, 64 at once", codes, Collections.nCopies(5000, OK));
  }

  private void hanging() throws Exception {
    well();
    System.out.println("ready");
    System.in.read(); // Redis hangs from now on
    List<Future<byte[]>> waiting = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      ClientCall<byte[], byte[]> call = channel.newCall(method(METHOD), CallOptions.DEFAULT);
      waiting.add(ClientCalls.futureUnaryCall(call, request("free", ("leaving-" + i).getBytes())));
    }
    Thread.sleep(100);
    // One or another may have been answered: the service finds out that Redis hangs.
    for (Future<byte[]> call : waiting) {
      if (!call.cancel(true)) {
        check("an answer without Redis", call.get()[1], (byte) 1);
      }
    }
    System.out.println("ok cancels");
    long start = System.nanoTime();
    Object code = code(METHOD, request("free", "staying".getBytes()), CallOptions.DEFAULT.withDeadlineAfter(2, TimeUnit.SECONDS));
    check("an answer within the deadline", Arrays.asList(code, System.nanoTime() - start < 2_000_000_000L), Arrays.asList(OK, true));
  }

  /** The overall code of an answer, or the status of a call that failed. */
  private Object code(String method, byte[] message, CallOptions options) {
    try {
      byte[] reply = ClientCalls.blockingUnaryCall(channel, method(method), options, message);
      return reply[0] == 1 << 3 ? (Object) (int) reply[1] : Arrays.toString(reply);
    } catch (StatusRuntimeException e) {
      return e.getStatus().getCode();
    }
  }

  private static void check(String name, Object got, Object want) {
    if (!Objects.equals(got, want)) {
      System.err.println(name + ": got " + got + ", want " + want);
      System.exit(1);
    }
    System.out.println("ok " + name);
  }

  private static byte[] filled(int size) {
    byte[] b = new byte[size];
    Arrays.fill(b, (byte) 'v');
    return b;
  }

  /** A RateLimitRequest with one descriptor of one entry, whose value may be any bytes. */
  private static byte[] request(String key, byte[] value) {
    byte[] entry = join(field(1, key.getBytes()), field(2, value));
    return join(field(1, "interop".getBytes()), field(2, field(1, entry)));
  }

  /** A field of bytes, as protobuf has it on the wire. */
  private static byte[] field(int number, byte[] data) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(number << 3 | 2);
    int length = data.length;
    for (; length > 0x7f; length >>= 7) {
      out.write(length & 0x7f | 0x80);
    }
    out.write(length);
    out.writeBytes(data);
    return out.toByteArray();
  }

  private static byte[] join(byte[] a, byte[] b) {
    byte[] both = Arrays.copyOf(a, a.length + b.length);
    System.arraycopy(b, 0, both, a.length, b.length);
    return both;
  }

  private static MethodDescriptor<byte[], byte[]> method(String name) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName(name)
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(new Bytes())
        .build();
  }

  /** Messages as bytes. */
  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
