package rls

import (
	"maps"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls/wire"
)

// appendMetadata appends the dynamic metadata. What cannot be encoded is left out.
func (c *call) appendMetadata(dst []byte) []byte {
	encoded, err := proto.Marshal(dynamicMetadata(c))
	if err != nil {
		return dst
	}
	return wire.AppendMetadata(dst, encoded)
}

// dynamicMetadata is what RESPONSE_DYNAMIC_METADATA adds to an answer: the request as
// it was understood, and the metadata of the rules whose descriptors passed. Texts of
// clients are made printable: a Struct holds UTF-8 only, and Envoy writes it to its log.
func dynamicMetadata(c *call) *structpb.Struct {
	list := make([]*structpb.Value, 0, len(c.req.Descriptors))
	for i := range c.req.Descriptors {
		d := describe(&c.req.Descriptors[i])
		if reason := c.degraded(&c.slots[i]); reason != "" {
			d.Fields["degraded"] = structpb.NewStringValue(reason)
		}
		list = append(list, structpb.NewStructValue(d))
	}
	fields := map[string]*structpb.Value{
		"domain":      text(c.req.Domain),
		"descriptors": structpb.NewListValue(&structpb.ListValue{Values: list}),
	}
	if c.req.HitsAddend != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(c.req.HitsAddend))
	}
	if m := passedMetadata(c); len(m) > 0 {
		if s, err := structpb.NewStruct(m); err == nil { // descriptors has checked that it is one
			fields["metadata"] = structpb.NewStructValue(s)
		}
	}
	return &structpb.Struct{Fields: fields}
}

// degraded is the reason, as in the metrics, of a decision that the store did not make;
// empty if it did.
func (c *call) degraded(sl *slot) string {
	if sl.kind != limited || c.dst[sl.take].Source == backend.Bucketed {
		return ""
	}
	return reasons[denials[c.dst[sl.take].Source]].reason
}

func describe(d *wire.Descriptor) *structpb.Struct {
	entries := make([]*structpb.Value, 0, len(d.Entries))
	for _, e := range d.Entries {
		entries = append(entries, text(e.Key+"="+e.Value))
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if o := d.Override; o != nil {
		m := &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: o.RequestsPerUnit, Unit: typev3.RateLimitUnit(o.Unit)}
		if o.UnitMultiplier > 0 {
			m.UnitMultiplier = wrapperspb.UInt32(o.UnitMultiplier)
		}
		fields["limit"] = structpb.NewStringValue(prototext.Format(m))
	}
	if d.HasHits {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(d.Hits))
	}
	return &structpb.Struct{Fields: fields}
}

// passedMetadata merges the metadata of the rules that passed, in the order of the
// descriptors: the first value of a key wins, maps are merged. The rules' own maps are
// never written to.
func passedMetadata(c *call) map[string]any {
	var merged map[string]any
	for i := range c.slots {
		sl := &c.slots[i]
		if sl.kind == replaced || sl.rule == nil || sl.over && !sl.rule.Shadow || len(sl.rule.Metadata) == 0 {
			continue
		}
		merged = mergeMetadata(merged, sl.rule.Metadata)
	}
	return merged
}

// mergeMetadata gives the keys of a and those of b that a lacks, leaving both as they
// are.
func mergeMetadata(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = make(map[string]any, len(b))
	}
	for k, v := range b {
		have, ok := out[k]
		if !ok {
			out[k] = v
			continue
		}
		old, isMap := have.(map[string]any)
		more, alsoMap := v.(map[string]any)
		if isMap && alsoMap {
			out[k] = mergeMetadata(old, more)
		}
	}
	return out
}

func text(s string) *structpb.Value {
	return structpb.NewStringValue(string(descriptors.AppendPrintable(nil, s)))
}
