package wire_test

import (
	"errors"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-rls/sluice/rls/wire"
)

// fromProto is the request that protobuf's own decoder saw.
func fromProto(m *rlsv3.RateLimitRequest) wire.Request {
	r := wire.Request{Domain: m.GetDomain(), HitsAddend: m.GetHitsAddend()}
	for _, d := range m.GetDescriptors() {
		w := wire.Descriptor{Negative: d.GetIsNegativeHits()}
		for _, e := range d.GetEntries() {
			w.Entries = append(w.Entries, wire.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if l := d.GetLimit(); l != nil {
			w.Override = &wire.Override{
				RequestsPerUnit: l.GetRequestsPerUnit(),
				Unit:            int32(l.GetUnit()),
				UnitMultiplier:  l.GetUnitMultiplier().GetValue(),
			}
		}
		if h := d.GetHitsAddend(); h != nil {
			w.HasHits, w.Hits = true, h.GetValue()
		}
		r.Descriptors = append(r.Descriptors, w)
	}
	return r
}

func full() *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{
		Domain:     "edge",
		HitsAddend: 7,
		Descriptors: []*commonv3.RateLimitDescriptor{
			{
				Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "api_key", Value: "shop-a"}, {Key: "route", Value: ""}},
				Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 4294967292, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(3),
				},
				HitsAddend: wrapperspb.UInt64(0),
			},
			{},
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{}}, HitsAddend: wrapperspb.UInt64(1<<64 - 1), IsNegativeHits: true},
		},
	}
}

func TestDecodeReadsWhatProtobufReads(t *testing.T) {
	m := full()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got wire.Request
	if err := wire.Decode(data, &got); err != nil {
		t.Fatalf("Decode = %v", err)
	}
	if diff := cmp.Diff(fromProto(m), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Decode differs from protobuf (-protobuf +ours):\n%s", diff)
	}
}

func TestDecodeTakesInvalidUTF8AsItIs(t *testing.T) {
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, "k\x00\xc3")
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendString(entry, "\xff\xfe")
	d := protowire.AppendTag(nil, 1, protowire.BytesType)
	d = protowire.AppendBytes(d, entry)
	data := protowire.AppendTag(nil, 1, protowire.BytesType)
	data = protowire.AppendString(data, "\xf0edge")
	data = protowire.AppendTag(data, 2, protowire.BytesType)
	data = protowire.AppendBytes(data, d)
	if proto.Unmarshal(data, &rlsv3.RateLimitRequest{}) == nil {
		t.Fatal("protobuf takes the message, so it proves nothing")
	}
	var got wire.Request
	if err := wire.Decode(data, &got); err != nil {
		t.Fatalf("Decode = %v", err)
	}
	want := wire.Request{Domain: "\xf0edge", Descriptors: []wire.Descriptor{{Entries: []wire.Entry{{Key: "k\x00\xc3", Value: "\xff\xfe"}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeLeavesNothingOfTheRequestBefore(t *testing.T) {
	data, err := proto.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	var req wire.Request
	for _, in := range [][]byte{data, {0x12, 0x00, 0x12, 0x00}} {
		if err := wire.Decode(in, &req); err != nil {
			t.Fatal(err)
		}
	}
	want := wire.Request{Descriptors: make([]wire.Descriptor, 2)}
	if diff := cmp.Diff(want, req, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeBounds(t *testing.T) {
	f := func(name string, data []byte) {
		t.Helper()
		var req wire.Request
		if err := wire.Decode(data, &req); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("%s: Decode = %v, want ErrTooLarge", name, err)
		}
	}
	f("descriptors", []byte(strings.Repeat("\x12\x00", wire.MaxDescriptors+1)))
	f("entries of one", wrap([]byte(strings.Repeat("\x0a\x00", wire.MaxEntries+1))))
	half := wrap([]byte(strings.Repeat("\x0a\x00", wire.MaxEntries/2+1)))
	f("entries of two", append(append([]byte{}, half...), half...))
	var req wire.Request
	if err := wire.Decode([]byte(strings.Repeat("\x12\x00", wire.MaxDescriptors)), &req); err != nil {
		t.Errorf("at the bound: %v", err)
	}
}

func wrap(d []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), d)
}

func TestDecodeRefusesBrokenMessages(t *testing.T) {
	for _, in := range []string{
		"\x0a", "\x0a\x05ab", "\x12\x04\x0a\x02\x0a\x05", "\x18", "\x18\xff", "\x00", "\x0b", "\x0c", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x12\x03\x1a\x01\x08", "\x12\x04\x12\x02\x18\x80", "\x22\x05",
	} {
		var req wire.Request
		if err := wire.Decode([]byte(in), &req); err == nil {
			t.Errorf("Decode(%q) = nil, want an error", in)
		}
		if err := proto.Unmarshal([]byte(in), &rlsv3.RateLimitRequest{}); err == nil {
			t.Errorf("protobuf takes %q", in)
		}
	}
}

func FuzzDecode(f *testing.F) {
	data, err := proto.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("\x12\x02\xff\xfe"))
	f.Add([]byte("\x0a\x04edge\x12\x00\x18\x00"))
	f.Add([]byte("\x12\x06\x12\x01\x00\x12\x01\x00"))
	// A limit, a wrapper and a scalar twice, a group, and a known field of another type.
	f.Add([]byte("\x12\x14\x12\x02\x08\x05\x12\x02\x10\x02\x1a\x02\x08\x09\x1a\x00\x20\x01\x20\x00\x18\x01\x18\x02\x0d\x01\x02\x03\x04\x2b\x2c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got wire.Request
		ours := wire.Decode(data, &got)
		m := &rlsv3.RateLimitRequest{}
		theirs := proto.Unmarshal(data, m)
		switch {
		case errors.Is(ours, wire.ErrTooLarge):
		case theirs == nil && ours != nil:
			t.Fatalf("Decode = %v where protobuf takes the message", ours)
		case theirs == nil:
			if diff := cmp.Diff(fromProto(m), got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("Decode differs from protobuf (-protobuf +ours):\n%s", diff)
			}
		case ours == nil && !strings.Contains(theirs.Error(), "UTF-8"):
			t.Fatalf("Decode takes what protobuf refuses: %v", theirs)
		}
	})
}
