package rls_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

// engines are both, by name, and whether it is the lean one.
var engines = map[string]bool{"grpc-go": false, "lean": true}

// serve serves store and the shop rules, and gives a connection to it.
func serve(t *testing.T, store backend.Store, lean bool) (*rls.Server, *grpc.ClientConn) {
	t.Helper()
	rules := load(t, shop)
	srv := rls.NewServer(rls.New(store, func() *descriptors.Rules { return rules }, rls.Options{}), rls.ServerOptions{Lean: lean})
	ln := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return srv, conn
}

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, _ := v.(proto.Message)
	return proto.Unmarshal(data.Materialize(), m)
}
func (rawCodec) Name() string { return "proto" }

func TestInvalidUTF8OverGRPCIsLimited(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, memstore.New(memstore.Options{}), lean)
			for i := range 4 {
				var answer rlsv3.RateLimitResponse
				err := conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
					rawRequest("shop", 0, [][]string{{"user", "\xff\xfe\x00"}}, -1), &answer, grpc.ForceCodecV2(rawCodec{}))
				if err != nil {
					t.Fatal(err)
				}
				want := rlsv3.RateLimitResponse_OK
				if i == 3 {
					want = rlsv3.RateLimitResponse_OVER_LIMIT
				}
				if answer.GetOverallCode() != want {
					t.Errorf("call %d: %v, want %v", i+1, answer.GetOverallCode(), want)
				}
			}
		})
	}
}

func TestAMessageThatIsNoneIsInvalidArgument(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, memstore.New(memstore.Options{}), lean)
			err := conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
				[]byte("\x0a\x40"), &rlsv3.RateLimitResponse{}, grpc.ForceCodecV2(rawCodec{}))
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("err = %v, want InvalidArgument", err)
			}
		})
	}
}

func TestOtherMethodsAreUnimplemented(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, memstore.New(memstore.Options{}), lean)
			err := conn.Invoke(t.Context(), "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", parseCall(t, "shop: user=x"), &rlsv3.RateLimitResponse{})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("err = %v, want Unimplemented", err)
			}
		})
	}
}

func TestHealthHasOneStateUnderBothNames(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			srv, conn := serve(t, memstore.New(memstore.Options{}), lean)
			health := healthpb.NewHealthClient(conn)
			f := func(want healthpb.HealthCheckResponse_ServingStatus) {
				t.Helper()
				for _, name := range []string{"", rls.HealthService} {
					got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
					if err != nil || got.GetStatus() != want {
						t.Errorf("Check(%q) = %v, %v, want %v", name, got.GetStatus(), err, want)
					}
				}
			}
			f(healthpb.HealthCheckResponse_NOT_SERVING)
			srv.SetServing(true)
			f(healthpb.HealthCheckResponse_SERVING)
			if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
				t.Errorf("Check(other) = %v, want NotFound", err)
			}
		})
	}
}

func TestReflectionListsTheServices(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, memstore.New(memstore.Options{}), lean)
			stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
				t.Helper()
				if err := stream.Send(req); err != nil {
					t.Fatal(err)
				}
				got, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			list := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			var names []string
			for _, s := range list.GetListServicesResponse().GetService() {
				names = append(names, s.GetName())
			}
			const service = "envoy.service.ratelimit.v3.RateLimitService"
			if all := strings.Join(names, " "); !strings.Contains(all, service) || !strings.Contains(all, "grpc.health.v1.Health") {
				t.Errorf("services = %s", all)
			}
			file := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}})
			if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
				t.Errorf("no description of %s: %v", service, file)
			}
		})
	}
}

// panicStore is a mistake of ours in the flesh.
type panicStore struct{}

func (panicStore) Take(context.Context, []backend.Take, []backend.Decision) error { panic("boom") }

// panicStart is one that does not even begin.
type panicStart struct{ panicStore }

func (panicStart) Start(time.Time, []backend.Take, []backend.Decision, backend.Continuation) {
	panic("boom")
}

func TestAPanicIsAnErrorOfItsCallAlone(t *testing.T) {
	for name, lean := range engines {
		for _, store := range []backend.Store{panicStore{}, panicStart{}} {
			t.Run(fmt.Sprintf("%s, %T", name, store), func(t *testing.T) {
				_, conn := serve(t, store, lean)
				client := rlsv3.NewRateLimitServiceClient(conn)
				for range 2 {
					_, err := client.ShouldRateLimit(t.Context(), parseCall(t, "shop: user=x"))
					if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "boom") {
						t.Errorf("err = %v, want Internal without the panic's text", err)
					}
				}
				if _, err := client.ShouldRateLimit(t.Context(), parseCall(t, "shop: free=x")); err != nil {
					t.Errorf("a call without the store = %v", err)
				}
			})
		}
	}
}

// slowStore answers after a second.
type slowStore struct{ backend.Store }

func (s slowStore) Take(ctx context.Context, takes []backend.Take, dst []backend.Decision) error {
	time.Sleep(time.Second)
	return s.Store.Take(ctx, takes, dst)
}

func TestShutdownFinishesCallsAndEndsStreams(t *testing.T) {
	for name, lean := range engines {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, conn := serve(t, slowStore{memstore.New(memstore.Options{})}, lean)
				srv.SetServing(true)
				watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: rls.HealthService})
				if err != nil {
					t.Fatal(err)
				}
				if first, err := watch.Recv(); err != nil || first.GetStatus() != healthpb.HealthCheckResponse_SERVING {
					t.Fatalf("first of the watch = %v, %v", first, err)
				}
				reflecting, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := reflecting.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
					t.Fatal(err)
				}
				called := make(chan error, 1)
				go func() {
					_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), parseCall(t, "shop: user=x"))
					called <- err
				}()
				synctest.Wait() // the call is in the store
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				srv.Shutdown(ctx)
				if err := <-called; err != nil {
					t.Errorf("the call in flight = %v", err)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("Shutdown took %v, held by a stream", took)
				}
			})
		})
	}
}

// R94: the decision over HTTP is 200, 429 or 400, and the whole reply.
func TestJSON(t *testing.T) {
	s := newService(t, shop, rls.Options{})
	f := func(body string, code int, want string) {
		t.Helper()
		got, reply := s.DecideJSON(t.Context(), []byte(body))
		text := strings.ReplaceAll(string(reply), " ", "") // protojson's blanks are not stable
		if got != code || !strings.Contains(text, strings.ReplaceAll(want, " ", "")) {
			t.Errorf("DecideJSON(%s) = %d %s, want %d %s", body, got, reply, code, want)
		}
	}
	call := `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}],"hitsAddend":3}`
	f(call, http.StatusOK, `{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"SECOND"},"durationUntilReset":"3s"}]}`)
	f(call, http.StatusTooManyRequests, `{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT",`)
	f(`{"domain":"shop","descriptors":[{"entries":[{"key":"none"}]}]}`, http.StatusOK, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`)
	f(`{"domain":"shop","descriptors":[{"entries":[{"key":"free"}]}]}`, http.StatusOK, `{"code":"OK","limitRemaining":4294967295}`)
	f(``, http.StatusBadRequest, "syntaxerror")
	f(`{"domain":"shop","oops":1}`, http.StatusBadRequest, "oops")
	f(`{"domain":"shop"}`, http.StatusBadRequest, "descriptor list must not be empty")
	f(`{"descriptors":[{}]}`, http.StatusBadRequest, "domain must not be empty")
}
