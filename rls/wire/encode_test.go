package wire_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-rls/sluice/rls/wire"
)

// answer is one response in the words of this package's callers.
type answer struct {
	over                       bool
	requests, unit, multiplier uint32
	name                       string
	remaining                  uint32
	reset                      int64
	header, value              string
	number                     uint64
	body                       string
}

// ours encodes a with two statuses, one of them without a limit.
func (a *answer) ours() []byte {
	b := wire.AppendOverallCode(nil, a.over)
	b = wire.AppendStatus(b, &wire.Status{
		Over:  a.over,
		Limit: wire.AppendLimit(nil, a.requests, a.unit, a.multiplier, a.name), Remaining: a.remaining, ResetSeconds: a.reset,
	})
	b = wire.AppendStatus(b, &wire.Status{Remaining: a.remaining})
	b = wire.AppendHeader(b, a.header, a.value)
	b = wire.AppendNumberHeader(b, a.header, a.number)
	return wire.AppendRawBody(b, a.body)
}

// protobufs is the message that ours has to be.
func (a *answer) protobufs(digits string) *rlsv3.RateLimitResponse {
	c := rlsv3.RateLimitResponse_OK
	if a.over {
		c = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	limit := &rlsv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: a.requests, Unit: rlsv3.RateLimitResponse_RateLimit_Unit(a.unit), Name: a.name,
	}
	if a.multiplier > 1 {
		limit.UnitMultiplier = wrapperspb.UInt32(a.multiplier)
	}
	m := &rlsv3.RateLimitResponse{
		OverallCode: c,
		Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{
			{Code: c, CurrentLimit: limit, LimitRemaining: a.remaining, DurationUntilReset: &durationpb.Duration{Seconds: a.reset}},
			{Code: rlsv3.RateLimitResponse_OK, LimitRemaining: a.remaining},
		},
		ResponseHeadersToAdd: []*corev3.HeaderValue{{Key: a.header, Value: a.value}, {Key: a.header, Value: digits}},
	}
	if a.body != "" {
		m.RawBody = []byte(a.body)
	}
	return m
}

// checkEncoding compares the encoding of a with protobuf's own, byte by byte.
func checkEncoding(t *testing.T, a *answer) {
	t.Helper()
	data := a.ours()
	var got rlsv3.RateLimitResponse
	if err := proto.Unmarshal(data, &got); err != nil {
		t.Fatalf("protobuf refuses the message of %+v: %v", a, err)
	}
	want := a.protobufs(got.GetResponseHeadersToAdd()[1].GetValue())
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("%+v (-protobuf +ours):\n%s", a, diff)
	}
	reference, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(reference, data) {
		t.Errorf("%.100v: %d bytes, which differ from protobuf's %d", a, len(data), len(reference))
	}
}

func TestAppendWritesWhatProtobufWrites(t *testing.T) {
	for _, a := range []answer{
		{header: "Retry-After", value: "1"},
		{over: true, requests: 100, unit: 2, remaining: 99, reset: 60, header: "Retry-After", value: "60", number: 60},
		{requests: math.MaxUint32, unit: 7, multiplier: math.MaxUint32, name: "per-ip", remaining: math.MaxUint32, reset: math.MaxInt64, number: math.MaxUint64},
		{requests: 1, multiplier: 1, name: strings.Repeat("n", 127), header: strings.Repeat("h", 130), value: strings.Repeat("v", 20000), body: strings.Repeat("b", 65536)},
		{requests: 1, multiplier: 2, name: strings.Repeat("n", 17000), body: "x"},
	} {
		checkEncoding(t, &a)
	}
}

func TestAppendNumberHeaderIsDecimal(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 9: "9", 3600: "3600", math.MaxUint64: "18446744073709551615"} {
		var got rlsv3.RateLimitResponse
		if err := proto.Unmarshal(wire.AppendNumberHeader(nil, "Retry-After", n), &got); err != nil {
			t.Fatal(err)
		}
		if h := got.GetResponseHeadersToAdd()[0]; h.GetKey() != "Retry-After" || h.GetValue() != want {
			t.Errorf("%d: %s: %s", n, h.GetKey(), h.GetValue())
		}
	}
}

func TestAppendMetadata(t *testing.T) {
	want, err := structpb.NewStruct(map[string]any{"domain": "edge", "n": 1.0})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got rlsv3.RateLimitResponse
	if err := proto.Unmarshal(wire.AppendMetadata(nil, encoded), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.GetDynamicMetadata(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add(true, uint32(100), uint32(2), uint32(0), "per-ip", uint32(7), int64(60), "Retry-After", "60", uint64(60), "no")
	f.Add(false, uint32(0), uint32(0), uint32(1), "", uint32(0), int64(0), "", "", uint64(0), "")
	f.Fuzz(func(t *testing.T, over bool, requests, unit, multiplier uint32, name string, remaining uint32, reset int64, header, value string, number uint64, body string) {
		for _, s := range []*string{&name, &header, &value} { // of the rules file, which is UTF-8
			*s = strings.ToValidUTF8(*s, "?")
		}
		checkEncoding(t, &answer{over, requests, unit % math.MaxInt32, multiplier, name, remaining, reset, header, value, number, body})
	})
}
