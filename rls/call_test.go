package rls_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls"
)

// step is one call of a timeline.
type step struct {
	at time.Duration
	// call is the request in the form of parseCall.
	call string
	// want is the answer in the form of formatAnswer.
	want string
}

// parseCall reads "domain: key=value,key=value #5 & key=value @10/MINUTE*2 ^7": the
// descriptors stand between ampersands, # is the descriptor's own hits (negative: a
// refund), @ its limit, and ^ the request's hits.
func parseCall(tb testing.TB, text string) *rlsv3.RateLimitRequest {
	tb.Helper()
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			tb.Fatalf("call %q: %v", text, err)
		}
		return n
	}
	domain, rest, _ := strings.Cut(text, ": ")
	req := &rlsv3.RateLimitRequest{Domain: domain}
	rest, hits, ok := strings.Cut(rest, " ^")
	if ok {
		req.HitsAddend = uint32(number(hits))
	}
	for part := range strings.SplitSeq(rest, " & ") {
		d := &commonv3.RateLimitDescriptor{}
		fields := strings.Fields(part)
		for _, f := range fields[1:] {
			switch f[0] {
			case '#':
				n, negative := strings.CutPrefix(f[1:], "-")
				d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(number(n)), negative
			case '@':
				requests, unit, _ := strings.Cut(f[1:], "/")
				unit, multiplier, ok := strings.Cut(unit, "*")
				d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(number(requests)),
					Unit:            typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit]),
				}
				if ok {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(number(multiplier)))
				}
			}
		}
		if fields[0] != "-" {
			for entry := range strings.SplitSeq(fields[0], ",") {
				k, v, _ := strings.Cut(entry, "=")
				d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: k, Value: v})
			}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// formatAnswer writes an answer as "OVER_LIMIT: OVER_LIMIT 0 in 6s, OK": each status
// with what is left and the time to its reset, where a limit applied.
func formatAnswer(r *rlsv3.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(r.GetOverallCode().String())
	sep := ": "
	for _, st := range r.GetStatuses() {
		b.WriteString(sep + st.GetCode().String())
		sep = ", "
		if st.GetCurrentLimit() != nil {
			fmt.Fprintf(&b, " %d in %v", st.GetLimitRemaining(), st.GetDurationUntilReset().AsDuration())
		}
	}
	return b.String()
}

func load(tb testing.TB, yaml string) *descriptors.Rules {
	tb.Helper()
	rules, problems := descriptors.NewLoader(descriptors.Options{}).Load([]descriptors.Source{{Name: "rules.yaml", Data: []byte(yaml)}})
	for _, p := range problems {
		tb.Fatal(p)
	}
	return rules
}

func newService(t *testing.T, yaml string, opts rls.Options) *rls.Service {
	t.Helper()
	rules := load(t, yaml)
	return rls.New(memstore.New(memstore.Options{}), func() *descriptors.Rules { return rules }, opts)
}

func decide(t *testing.T, s *rls.Service, call string) *rlsv3.RateLimitResponse {
	t.Helper()
	data, err := proto.Marshal(parseCall(t, call))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Decide(t.Context(), data)
	if err != nil {
		t.Fatalf("Decide(%q) = %v", call, err)
	}
	return answer
}

// timeline plays steps against rules, in a bubble whose clock starts at the first.
func timeline(t *testing.T, yaml string, opts rls.Options, steps []step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, yaml, opts)
		start := time.Now()
		for i, st := range steps {
			time.Sleep(time.Until(start.Add(st.at)))
			if got := formatAnswer(decide(t, s, st.call)); got != st.want {
				t.Errorf("step %d at %v, %s:\n got %s\nwant %s", i+1, st.at, st.call, got, st.want)
			}
		}
	})
}

const second = time.Second

const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1, burst: 3}
  - key: group
    rate_limit: {unit: minute, requests_per_unit: 6, burst: 10}
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true}
  - key: path
    value: /health
  - key: path
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: tokens
    rate_limit: {unit: hour, requests_per_unit: 21}
  - key: token
    sensitive: true
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: slow
    rate_limit: {unit: second, unit_multiplier: 30, requests_per_unit: 60}
`

func TestStatusesTellWhatIsLeftAndWhen(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: user=ann", "OK: OK 2 in 1s"},
		{0, "shop: user=ann ^2", "OK: OK 0 in 3s"},
		{0, "shop: user=ann", "OVER_LIMIT: OVER_LIMIT 0 in 1s"},
		{0, "shop: user=bob", "OK: OK 2 in 1s"},
		{second / 2, "shop: user=ann", "OVER_LIMIT: OVER_LIMIT 0 in 1s"},
		{second, "shop: user=ann", "OK: OK 0 in 3s"},
		{10 * second, "shop: user=ann", "OK: OK 2 in 1s"},
		{10 * second, "shop: user=ann ^3", "OVER_LIMIT: OVER_LIMIT 2 in 1s"},
		{10 * second, "shop: user=ann ^4", "OVER_LIMIT: OVER_LIMIT 2 in 1s"},
	})
}

// R93: no rule is a fast OK; R16: descriptors of any depth are taken.
func TestCallsWithoutALimitPass(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "nowhere: user=ann", "OK: OK"},
		{0, "nowhere: user=ann @1/SECOND", "OK: OK"},
		{0, "shop: nobody=ann", "OK: OK"},
		{0, "shop: path=/health", "OK: OK"},
		{0, "shop: -", "OK: OK"},
		{0, "shop: user=ann,more=1", "OK: OK"},
		{0, "shop: - & user=ann & nobody=x", "OK: OK, OK 2 in 1s, OK"},
	})
}

func TestUnlimitedSaysTheMost(t *testing.T) {
	answer := decide(t, newService(t, shop, rls.Options{}), "shop: free=yes")
	if got := answer.GetStatuses()[0]; got.GetLimitRemaining() != 4294967295 || got.GetCurrentLimit() != nil || got.GetDurationUntilReset() != nil {
		t.Errorf("status = %v, want 4294967295 left and no limit", got)
	}
}

// R38: the group is not charged for calls that the user's limit denies.
func TestADeniedCallTakesFromNoDescriptor(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: group=g & user=ann", "OK: OK 9 in 10s, OK 2 in 1s"},
		{0, "shop: group=g & user=ann", "OK: OK 8 in 20s, OK 1 in 2s"},
		{0, "shop: group=g & user=ann", "OK: OK 7 in 30s, OK 0 in 3s"},
		{0, "shop: group=g & user=ann", "OVER_LIMIT: OK 7 in 30s, OVER_LIMIT 0 in 1s"},
		{0, "shop: user=ann & group=g", "OVER_LIMIT: OVER_LIMIT 0 in 1s, OK 7 in 30s"},
		{0, "shop: group=g & banned=x & user=bob", "OVER_LIMIT: OK 7 in 30s, OVER_LIMIT 0 in 1m0s, OK 3 in 0s"},
		{0, "shop: group=g & user=bob", "OK: OK 6 in 40s, OK 2 in 1s"},
	})
}

func TestEveryDeniedDescriptorIsToldNotOnlyTheFirst(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: user=ann ^3", "OK: OK 0 in 3s"},
		{0, "shop: group=g #10 ^1", "OK: OK 0 in 1m40s"},
		{0, "shop: user=ann & group=g & path=/a", "OVER_LIMIT: OVER_LIMIT 0 in 1s, OVER_LIMIT 0 in 10s, OK 5 in 0s"},
	})
}

func TestABanIsDecidedWithoutTheStore(t *testing.T) {
	rules := load(t, shop)
	s := rls.New(brokenStore{}, func() *descriptors.Rules { return rules }, rls.Options{})
	for _, tt := range []struct{ call, want string }{
		{"shop: banned=x", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s"},
		{"shop: banned=x #0", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s"},
		{"shop: user=x @0/HOUR*2", "OVER_LIMIT: OVER_LIMIT 0 in 2h0m0s"},
		{"shop: banned=x & banned=y #-1", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s, OK 0 in 1m0s"},
	} {
		if got := formatAnswer(decide(t, s, tt.call)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.call, got, tt.want)
		}
	}
}

func TestHitsOfTheDescriptorGoBeforeThoseOfTheRequest(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: group=g & user=ann #2 ^5", "OK: OK 5 in 50s, OK 1 in 2s"},
		{0, "shop: group=g #0 ^5", "OK: OK 5 in 50s"}, // a present 0 only looks
		{0, "shop: group=g #-2", "OK: OK 7 in 30s"},
		{0, "shop: group=g #-9", "OK: OK 10 in 0s"}, // never above full
		{0, "shop: user=ann #1", "OK: OK 0 in 3s"},
		{0, "shop: user=ann #0", "OVER_LIMIT: OVER_LIMIT 0 in 1s"},
		{0, "shop: user=ann #-1", "OK: OK 1 in 2s"}, // R43
		{0, "shop: user=bob #18446744073709551615", "OVER_LIMIT: OVER_LIMIT 3 in 0s"},
	})
}

func TestAGiveBackOfADeniedCallIsNotApplied(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: group=g #4", "OK: OK 6 in 40s"},
		{0, "shop: group=g #-4 & banned=x", "OVER_LIMIT: OK 6 in 40s, OVER_LIMIT 0 in 1m0s"},
	})
}

// R13: one bucket, named twice in a call, is charged the sum once.
func TestTheSameBucketTwiceIsChargedTheSum(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: group=g & group=g", "OK: OK 8 in 20s, OK 8 in 20s"},
		{0, "shop: group=g #5 & group=g #4", "OVER_LIMIT: OVER_LIMIT 8 in 10s, OVER_LIMIT 8 in 10s"},
		{0, "shop: group=g #5 & group=g #0", "OK: OK 3 in 1m10s, OK 3 in 1m10s"},
		{0, "shop: group=g #3 & group=g #-1", "OK: OK 1 in 1m30s, OK 1 in 1m30s"},
	})
}

// What two descriptors on one bucket do together is what the stricter of them does.
func TestTheStricterOfTwoOnOneBucketDecides(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: tokens=t #0", "OK: OK 21 in 0s"}, // marked, so counts of a descriptor's own may be debts
		{0, "shop: tokens=t #15 & tokens=t ^10", "OVER_LIMIT: OVER_LIMIT 21 in 0s, OVER_LIMIT 21 in 0s"},
		{0, "shop: tokens=t #15 & tokens=t #10", "OK: OK 0 in 1h11m26s, OK 0 in 1h11m26s"},
		{0, "shop: user=u ^3", "OK: OK 0 in 3s"},
		{0, "shop: user=u #-0 & user=u ^1", "OVER_LIMIT: OK 0 in 3s, OVER_LIMIT 0 in 1s"},
	})
}

// Check before, charge after: a limit of 21 with 10 a response passes three, then none.
func TestALookMarksTheBucketForALaterCharge(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: tokens=t #0", "OK: OK 21 in 0s"},
		{0, "shop: tokens=t #10", "OK: OK 11 in 28m35s"},
		{0, "shop: tokens=t #0", "OK: OK 11 in 28m35s"},
		{0, "shop: tokens=t #10", "OK: OK 1 in 57m9s"},
		{0, "shop: tokens=t #0", "OK: OK 1 in 57m9s"},
		{0, "shop: tokens=t #10", "OK: OK 0 in 1h25m43s"}, // nine more than there were
		{0, "shop: tokens=t #0", "OVER_LIMIT: OVER_LIMIT 0 in 28m35s"},
		{0, "shop: tokens=t #100", "OVER_LIMIT: OVER_LIMIT 0 in 1h2m52s"},
		{0, "shop: tokens=t #0", "OVER_LIMIT: OVER_LIMIT 0 in 1h2m52s"},
	})
}

func TestALimitOfTheRequestHasABucketOfItsOwn(t *testing.T) {
	timeline(t, shop, rls.Options{}, []step{
		{0, "shop: user=ann @2/MINUTE", "OK: OK 1 in 30s"},
		{0, "shop: user=ann", "OK: OK 2 in 1s"},
		{0, "shop: user=ann @2/MINUTE", "OK: OK 0 in 1m0s"},
		{0, "shop: user=ann @2/MINUTE", "OVER_LIMIT: OVER_LIMIT 0 in 30s"},
		{0, "shop: user=ann @3/MINUTE", "OK: OK 2 in 20s"},
		{0, "shop: user=ann @2/MINUTE*2", "OK: OK 1 in 1m0s"},
		{0, "shop: user=bob @2/MINUTE", "OK: OK 1 in 30s"},
		{0, "shop: no=rule @2/HOUR", "OK: OK 1 in 30m0s"},
		{0, "shop: - @2/HOUR", "OK: OK 1 in 30m0s"},
		{0, "shop: banned=x @1/SECOND", "OK: OK 0 in 1s"},
		{0, "shop: free=x @1/SECOND", "OK: OK 0 in 1s"},
		{0, "shop: user=eve @4294967292/SECOND", "OK: OK 4294967291 in 1s"},
		{0, "shop: user=joe @5/UNKNOWN", "OK: OK 2 in 1s"}, // ignored: the rule acts
		{0, "shop: user=joe @9/YEAR*4294967295", "OK: OK 8 in 9733h20m0s"},
	})
}

func TestALimitOfTheRequestCountsByTheDefaultAlgorithm(t *testing.T) {
	timeline(t, shop, rls.Options{OverrideAlgorithm: backend.LeakyBucket}, []step{
		{0, "shop: user=ann @100/MINUTE", "OK: OK 0 in 1s"}, // an even flow, one at a time
		{0, "shop: user=ann @100/MINUTE", "OVER_LIMIT: OVER_LIMIT 0 in 1s"},
		{second, "shop: user=ann @100/MINUTE", "OK: OK 0 in 1s"},
	})
}

// R107: the status names the rule that decided.
func TestCurrentLimitIsAsWritten(t *testing.T) {
	s := newService(t, shop, rls.Options{})
	got := decide(t, s, "shop: slow=x").GetStatuses()[0].GetCurrentLimit()
	want := &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: 60, Unit: rlsv3.RateLimitResponse_RateLimit_SECOND, UnitMultiplier: wrapperspb.UInt32(30)}
	if !proto.Equal(got, want) {
		t.Errorf("current_limit = %v, want %v", got, want)
	}
	got = decide(t, s, "shop: user=x").GetStatuses()[0].GetCurrentLimit()
	want = &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: 1, Unit: rlsv3.RateLimitResponse_RateLimit_SECOND}
	if !proto.Equal(got, want) {
		t.Errorf("current_limit = %v, want %v", got, want)
	}
}

// brokenStore is a store out of reach.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []backend.Take, []backend.Decision) error {
	return errors.New("store is away")
}

const modes = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: q1
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: q2
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: qs
    quota_mode: true
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1, name: a, replaces: [{name: b}]}
  - key: b
    rate_limit: {unit: minute, requests_per_unit: 1, name: b}
  - key: x
    rate_limit: {unit: minute, requests_per_unit: 1, name: x, replaces: [{name: y}]}
  - key: y
    rate_limit: {unit: minute, requests_per_unit: 1, name: y, replaces: [{name: x}]}
`

func TestAShadowRuleNeverDenies(t *testing.T) {
	timeline(t, modes, rls.Options{}, []step{
		{0, "shop: trial=x", "OK: OK 0 in 1m0s"},
		{0, "shop: trial=x", "OK: OK 0 in 1m0s"},
		{0, "shop: trial=x & user=ann", "OK: OK 0 in 1m0s, OK 0 in 1m0s"},
		{0, "shop: trial=y & user=ann", "OVER_LIMIT: OK 1 in 0s, OVER_LIMIT 0 in 1m0s"}, // not charged
	})
}

func TestGlobalShadowAnswersOK(t *testing.T) {
	timeline(t, modes, rls.Options{Shadow: true}, []step{
		{0, "shop: user=ann", "OK: OK 0 in 1m0s"},
		{0, "shop: user=ann", "OK: OVER_LIMIT 0 in 1m0s"},
		{0, "shop: user=ann @1/HOUR", "OK: OK 0 in 1h0m0s"},
		{0, "shop: user=ann @1/HOUR", "OK: OVER_LIMIT 0 in 1h0m0s"},
	})
}

// R52: quota rules deny a call only together.
func TestQuotaRulesDenyTogether(t *testing.T) {
	timeline(t, modes, rls.Options{}, []step{
		{0, "shop: q1=x & q2=x", "OK: OK 0 in 1m0s, OK 1 in 30s"},
		{0, "shop: q1=x & q2=x", "OK: OVER_LIMIT 0 in 1m0s, OK 0 in 1m0s"},
		{0, "shop: q1=x & q2=x", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s, OVER_LIMIT 0 in 30s"},
		{0, "shop: q1=x", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s"},
		{0, "shop: q1=x & user=ann", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s, OK 1 in 0s"},
		{0, "shop: q1=x & qs=y", "OK: OVER_LIMIT 0 in 1m0s, OK 0 in 1m0s"},
		{0, "shop: q1=x & qs=y", "OK: OVER_LIMIT 0 in 1m0s, OK 0 in 1m0s"},
	})
}

func TestGlobalQuotaCountsDescriptorsWithoutALimit(t *testing.T) {
	timeline(t, modes, rls.Options{Quota: true}, []step{
		{0, "shop: user=ann", "OK: OK 0 in 1m0s"},
		{0, "shop: user=ann", "OVER_LIMIT: OVER_LIMIT 0 in 1m0s"},
		{0, "shop: user=ann & no=rule", "OK: OVER_LIMIT 0 in 1m0s, OK"},
	})
}

func TestReplacesDropsTheNamedLimitInAnyOrder(t *testing.T) {
	timeline(t, modes, rls.Options{}, []step{
		{0, "shop: a=1 & b=1", "OK: OK 0 in 1m0s, OK"},
		{0, "shop: b=1 & a=2", "OK: OK, OK 0 in 1m0s"},
		{0, "shop: b=1", "OK: OK 0 in 1m0s"}, // it was not charged
		{0, "shop: x=1 & y=1", "OK: OK, OK"}, // each drops the other
		{0, "shop: b=1 @1/HOUR & a=3", "OK: OK 0 in 1h0m0s, OK 0 in 1m0s"},
	})
}
