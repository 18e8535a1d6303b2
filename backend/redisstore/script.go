package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

// The script's files in their order; main is the last, and says what all do.
var (
	//go:embed prelude.lua
	prelude string
	//go:embed tokens.lua
	tokens string
	//go:embed fixed.lua
	fixed string
	//go:embed sliding.lua
	sliding string
	//go:embed log.lua
	log string
	//go:embed take.lua
	main string

	source = prelude + tokens + fixed + sliding + log + main
	digest = redis.NewScript(source).Hash()
)

const (
	// headSize and takeSize are the bytes of the script's argument for the call and for
	// each take, and answerSize those of its reply for each take.
	headSize, takeSize, answerSize = 2 * 8, 9 * 8, 8 * 8

	// maxKeys bounds the keys of one script: fifty would hold up the server for some 300
	// microseconds.
	maxKeys = 24
)

// batch is the takes of a call that go to one script.
type batch struct {
	// indices are the places of the takes in the call.
	indices []int
	// leases are those of the takes, nil where there is none.
	leases []*backend.Lease
	// args are those of EVALSHA, ready but for the script and its argument.
	args []any
}

// The places of arguments in batch.args.
const (
	argCommand = iota
	argScript
	argCount
	argKeys
)

// add puts a take into the batch.
func (b *batch) add(index int, key string) {
	if b.args == nil {
		b.args = make([]any, argKeys, argKeys+2)
	}
	b.indices = append(b.indices, index)
	b.args = append(b.args, key)
}

// appendHead and appendTake write the script's argument; take.lua says what is in it.
func appendHead(dst []byte, now int64, partial bool) []byte {
	part := 0.0
	if partial {
		part = 1
	}
	return appendDoubles(dst, float64(now), part)
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

// run sends a batch and fills dst, which is that of the whole call, and the batch's leases.
func (s *Store) run(ctx context.Context, b *batch, argument []byte, dst []backend.Decision) error {
	args := append(b.args, argument)
	args[argCommand], args[argScript], args[argCount] = "evalsha", digest, len(b.indices)
	reply, err := s.send(ctx, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[argCommand], args[argScript] = "eval", source
		reply, err = s.send(ctx, args)
	}
	if err != nil {
		return wrap("taking from Redis", err)
	}
	if len(reply) != len(b.indices)*answerSize {
		return wrap("taking from Redis", fmt.Errorf("reply of %d bytes for %d takes", len(reply), len(b.indices)))
	}
	for n, i := range b.indices {
		readAnswer(reply[n*answerSize:], &dst[i], b.leases[n])
	}
	return nil
}

func (s *Store) send(ctx context.Context, args []any) ([]byte, error) {
	cmd := once{StringCmd: redis.NewStringCmd(ctx, args...)}
	if s.cluster {
		cmd.slot = slot([]byte(args[argKeys].(string))) //nolint:errcheck // add put a string there
	}
	process := s.client.Process
	if s.group != nil {
		process = s.group.process
	}
	if err := process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Bytes()
}
