package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

// The script's files in their order. Those from buckets to take are the body of a function
// that runs only where it is needed.
var (
	//go:embed prelude.lua
	prelude string
	//go:embed plain.lua
	plain string
	//go:embed buckets.lua
	buckets string
	//go:embed tokens.lua
	tokens string
	//go:embed fixed.lua
	fixed string
	//go:embed sliding.lua
	sliding string
	//go:embed log.lua
	sortedSets string
	//go:embed take.lua
	take string
	//go:embed calls.lua
	calls string

	source = prelude + plain +
		"local function others()\n" + buckets + tokens + fixed + sliding + sortedSets + take + "end\n" +
		calls
	digest = redis.NewScript(source).Hash()
)

const (
	// headSize, callSize and takeSize are the bytes of the script's argument for all, for each
	// call and for each take without a lease, and answerSize those of its reply for each take.
	headSize, callSize, takeSize, answerSize = 8, 2 * 8, 9 * 8, 8 * 8

	// maxKeys bounds the keys of one script: fifty would hold up the server for some 300
	// microseconds.
	maxKeys = 24
)

// appendHead, appendCall and appendTake write the script's argument; calls.lua says what is
// in it.
func appendHead(dst []byte, now int64) []byte { return appendDoubles(dst, float64(now)) }

func appendCall(dst []byte, takes []backend.Take, partial bool) []byte {
	if t := &takes[0]; len(takes) == 1 && isPlain(t) {
		return appendDoubles(dst,
			0, float64(t.Limit.Requests), float64(t.Limit.Period.Microseconds()), t.Limit.Capacity(), float64(min(t.Hits, backend.MaxHits)))
	}
	part := 0.0
	if partial {
		part = 1
	}
	dst = appendDoubles(dst, float64(len(takes)), part)
	for i := range takes {
		dst = appendTake(dst, &takes[i])
	}
	return dst
}

// isPlain reports whether a take that is alone in its script is one for plain.lua. Then it
// makes no difference what its mode is, nor whether its call has others elsewhere.
func isPlain(t *backend.Take) bool {
	return t.Limit.Algorithm == backend.TokenBucket && t.Hits > 0 && t.Give == 0 && t.Overflow == backend.Reject && t.Lease == nil
}

func appendTake(dst []byte, t *backend.Take) []byte {
	leases := 0.0
	if t.Lease != nil {
		leases = 1
	}
	dst = appendDoubles(dst,
		float64(t.Limit.Algorithm), float64(t.Limit.Requests), float64(t.Limit.Period.Microseconds()), t.Limit.Capacity(),
		float64(min(t.Hits, backend.MaxHits)), float64(min(t.Give, backend.MaxHits)), float64(t.Mode), float64(t.Overflow),
		leases)
	if t.Lease != nil {
		dst = appendLease(dst, t.Lease)
	}
	return dst
}

func appendLease(dst []byte, l *backend.Lease) []byte {
	return appendDoubles(dst,
		float64(min(l.Want, backend.MaxHits)), float64(min(l.Held, backend.MaxHits)), float64(min(l.Back, backend.MaxHits)),
		float64(min(l.Counted, backend.MaxHits)), float64(l.Generation), float64(min(l.Asked, backend.MaxHits)),
		l.Demand, l.Fraction, l.Scarce, float64(min(max(l.Calls, 1), backend.MaxHits)))
}

func appendDoubles(dst []byte, numbers ...float64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(n))
	}
	return dst
}

// readAnswer reads the decision of one take, and its lease if it has one, out of the
// script's reply.
func readAnswer(reply []byte, d *backend.Decision, l *backend.Lease) {
	number := func(i int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(reply[8*i:]))
	}
	state := int(number(0))
	*d = backend.Decision{
		OK:      state&1 != 0,
		Debt:    state&2 != 0,
		Charged: uint64(number(1)),
		Level:   number(2),
		Wait:    time.Duration(number(3)) * time.Microsecond,
		Full:    time.Duration(number(4)) * time.Microsecond,
	}
	if l != nil {
		l.Granted, l.Share, l.Generation = uint64(number(5)), number(6), int64(number(7))
		l.Counted = l.Held + l.Granted
	}
}

// once is a command that go-redis must not send a second time.
//
// A cluster's client does not obey MaxRetries: it sends a command again whose connection
// broke, executed or not, unless the command says so.
type once struct {
	*redis.StringCmd

	slot uint16 // on a cluster
}

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// command makes the command that runs the script for parts: by its digest, or by its text.
func (s *Store) command(ctx context.Context, of []*part, text bool) once {
	keys, size := 0, headSize
	for _, p := range of {
		keys, size = keys+len(p.keys), size+callSize+len(p.takes)*takeSize
	}
	var now int64
	if s.now != nil {
		now = s.now()
	}
	argument := appendHead(make([]byte, 0, size), now)
	args := make([]any, 3, 3+keys+1)
	if args[0], args[1] = "evalsha", digest; text {
		args[0], args[1] = "eval", source
	}
	args[2] = keys
	for _, p := range of {
		argument = appendCall(argument, p.takes, p.several != nil && !p.several.settling)
		for i := range p.keys {
			args = append(args, &p.keys[i]) // a pointer is no allocation
		}
	}
	return once{StringCmd: redis.NewStringCmd(ctx, append(args, argument)...), slot: of[0].slot}
}

// run runs the script for parts by itself, and waits for the answer.
func (s *Store) run(ctx context.Context, of []*part) ([]byte, error) {
	cmd := s.command(ctx, of, false)
	err := s.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.command(ctx, of, true)
		err = s.client.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Bytes()
}
