package rls_test

import (
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-rls/sluice/rls"
)

// rawRequest is a message of one entry a descriptor, whose strings may be any bytes;
// the descriptor numbered look, if any, brings hits of 0.
func rawRequest(domain string, hits uint64, entries [][]string, look int) []byte {
	bytes := func(b []byte, num protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
	}
	data := bytes(nil, 1, []byte(domain))
	for i, e := range entries {
		d := bytes(nil, 1, bytes(bytes(nil, 1, []byte(e[0])), 2, []byte(e[1])))
		if i == look {
			d = bytes(d, 3, nil)
		}
		data = bytes(data, 2, d)
	}
	if hits > 0 {
		data = protowire.AppendVarint(protowire.AppendTag(data, 3, protowire.VarintType), hits)
	}
	return data
}

func decideRaw(t *testing.T, s *rls.Service, domain string, hits uint64, entries [][]string, look int) *rlsv3.RateLimitResponse {
	t.Helper()
	answer, err := s.Decide(t.Context(), rawRequest(domain, hits, entries, look))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
