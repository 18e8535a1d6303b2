package rls

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/descriptors"
	"github.com/sluice-rls/sluice/rls/wire"
)

// call is the scratch of one call, used again by later ones.
type call struct {
	s      *Service
	stripe uint32 // of the counters: scratches that are in use at once differ, mostly
	start  time.Time

	msg  []byte // the message; req shares its memory
	req  wire.Request
	set  *ruleSet // the rules in force, and their counters
	dom  *descriptors.Domain
	ents []descriptors.Entry // the entries of the descriptor in hand

	slots []slot // one per descriptor, in order
	names map[string]struct{}

	label []byte // scratch for a metric's label
	limit []byte // scratch for a status' current_limit
	keys  []byte // the buckets' keys, one after the other
	takes []backend.Take
	dst   []backend.Decision
	bans  int // how many of takes are bans

	switched Switch
	denied   bool

	// Of a call that has to wait: who takes its answer, and scratch for that.
	to    wire.Answerer
	reply []byte
}

// kind is what a descriptor came to before any bucket was asked.
type kind uint8

const (
	limited kind = iota
	unmatched
	unlimited
	replaced
)

// slot is one descriptor of a call on its way to a status.
type slot struct {
	kind kind
	rule *descriptors.Rule // nil: unmatched, or the limit came with the request

	// The limit as written, for the answer.
	requests   uint32
	unit       descriptors.Unit
	multiplier uint32

	hits     uint64
	negative bool
	mode     backend.Mode
	take     int // its place in call.takes

	over      bool // it could not pass alone
	remaining uint64
	reset     time.Duration
}

func (sl *slot) banned() bool { return sl.kind == limited && sl.requests == 0 }

func (sl *slot) look() bool { return sl.hits == 0 && !sl.negative }

// plan matches the descriptors and lists the takes that they ask for: none if the switch
// decides.
func (c *call) plan(sw Switch) {
	c.dom = c.set.rules.Domain(c.req.Domain)
	c.slots, c.takes, c.keys, c.bans = c.slots[:0], c.takes[:0], c.keys[:0], 0
	c.switched, c.denied = sw, false
	if sw.decides() {
		return
	}
	replaces := false
	for i := range c.req.Descriptors {
		c.slots = append(c.slots, slot{})
		sl := &c.slots[i]
		c.match(&c.req.Descriptors[i], sl)
		replaces = replaces || sl.rule != nil && len(sl.rule.Replaces) > 0
	}
	if replaces {
		c.replace()
	}
	c.setModes()
	for i := range c.slots {
		if c.slots[i].kind == limited {
			c.addTake(i)
		}
	}
}

// match finds what limits a descriptor and how many hits it stands for.
func (c *call) match(d *wire.Descriptor, sl *slot) {
	sl.kind, sl.negative = unmatched, d.Negative
	switch {
	case d.HasHits:
		sl.hits = min(d.Hits, backend.MaxHits)
	default: // rls.proto: an addend of 0 means 1
		sl.hits = max(uint64(c.req.HitsAddend), 1)
	}
	if c.dom == nil {
		return
	}
	if d.Override != nil {
		if unit := overrideUnit(d.Override); unit != descriptors.UnknownUnit {
			sl.kind, sl.unit = limited, unit
			sl.requests, sl.multiplier = d.Override.RequestsPerUnit, d.Override.UnitMultiplier
			return
		}
		c.s.metrics.overridesIgnored.Inc()
	}
	rule := c.dom.Match(c.entries(d))
	if rule == nil {
		return
	}
	sl.rule, sl.kind = rule, limited
	if rule.Unlimited {
		sl.kind = unlimited
	}
	sl.requests, sl.unit, sl.multiplier = rule.RequestsPerUnit, rule.Unit, rule.UnitMultiplier
}

// overrideUnit is the unit of a limit in a request. Its numbers, those of
// envoy.type.v3.RateLimitUnit, are the rules' own; a number that names none is unknown.
func overrideUnit(o *wire.Override) descriptors.Unit {
	if u := o.Unit; u >= int32(descriptors.Second) && u <= int32(descriptors.Week) {
		return descriptors.Unit(u)
	}
	return descriptors.UnknownUnit
}

// entries gives d's entries in the words of the rules; they hold until the next call of
// entries.
func (c *call) entries(d *wire.Descriptor) []descriptors.Entry {
	c.ents = c.ents[:0]
	for _, e := range d.Entries {
		c.ents = append(c.ents, descriptors.Entry(e))
	}
	return c.ents
}

// replace drops each limit whose name a matched limit replaces. All are looked at
// before any is dropped, so that the order of descriptors has no say: two that replace
// each other both go.
func (c *call) replace() {
	if c.names == nil {
		c.names = make(map[string]struct{})
	}
	clear(c.names)
	for i := range c.slots {
		if r := c.slots[i].rule; r != nil {
			for _, name := range r.Replaces {
				c.names[name] = struct{}{}
			}
		}
	}
	for i := range c.slots {
		if r := c.slots[i].rule; r != nil && r.Name != "" {
			if _, ok := c.names[r.Name]; ok {
				c.slots[i].kind = replaced
			}
		}
	}
}

// setModes says of each limited slot what it does to the call when it cannot pay. The
// quota rules of a call deny it only together, so one that always passes (it is in
// shadow mode, or no limit applies to it under QUOTA_MODE) frees them all.
func (c *call) setModes() {
	free := false
	for i := range c.slots {
		sl := &c.slots[i]
		quota := c.s.opts.Quota && sl.kind != unlimited || sl.kind == limited && sl.rule != nil && sl.rule.Quota
		shadow := c.shadows(sl)
		switch {
		case quota && (shadow || sl.kind != limited):
			free = true
			sl.mode = backend.Shadow
		case shadow:
			sl.mode = backend.Shadow
		case quota:
			sl.mode = backend.Quota
		}
	}
	for i := range c.slots {
		if free && c.slots[i].mode == backend.Quota {
			c.slots[i].mode = backend.Shadow
		}
	}
}

// shadows reports whether a slot denies nothing, whatever comes of it.
func (c *call) shadows(sl *slot) bool {
	return c.s.opts.Shadow || c.switched == ShadowAll || sl.rule != nil && sl.rule.Shadow
}

// addTake adds the take of slot i, or adds its hits to the take of an earlier slot on
// the same bucket: a bucket that is named twice is charged the sum, once.
func (c *call) addTake(i int) {
	sl, d := &c.slots[i], &c.req.Descriptors[i]
	take := backend.Take{Mode: sl.mode, Overflow: sl.overflow(d.HasHits)}
	if sl.negative {
		take.Give = sl.hits
	} else {
		take.Hits = sl.hits
	}
	if sl.negative && (sl.hits == 0 || sl.requests == 0) { // nothing to give back, and no denial
		take.Mode = backend.Shadow
	}
	if sl.banned() {
		sl.take = len(c.takes)
		c.takes = append(c.takes, ban(take, descriptors.OverrideLimit(backend.TokenBucket, 0, sl.unit, sl.multiplier).Period))
		c.bans++
		return
	}
	start := len(c.keys)
	if sl.rule != nil {
		take.Limit = sl.rule.Limit
		take.OnFailure = onFailures[sl.rule.OnFailure]
		take.NoLease = !sl.rule.Prefetch
		c.keys = sl.rule.AppendKey(c.keys, c.entries(d))
	} else {
		take.Limit = descriptors.OverrideLimit(c.s.opts.OverrideAlgorithm, sl.requests, sl.unit, sl.multiplier)
		c.keys = c.dom.AppendOverrideKey(c.keys, c.entries(d), sl.requests, sl.unit, sl.multiplier, take.Limit.Algorithm)
	}
	take.Key = c.keys[start:len(c.keys):len(c.keys)]
	sl.take = c.merge(take)
}

// merge adds take to the takes, or to the one with the same key, and answers its place.
func (c *call) merge(take backend.Take) int {
	for j := range c.takes {
		if t := &c.takes[j]; bytes.Equal(t.Key, take.Key) {
			t.Hits = min(t.Hits+take.Hits, backend.MaxHits)
			t.Give = min(t.Give+take.Give, backend.MaxHits)
			t.Mode = min(t.Mode, take.Mode) // Enforce before Shadow
			t.Overflow = min(t.Overflow, take.Overflow)
			return j
		}
	}
	c.takes = append(c.takes, take)
	return len(c.takes) - 1
}

// overflow resolves the rule's setting for this call: auto is for counts that the
// descriptor brought itself, and for looks, which are what marks a bucket.
func (sl *slot) overflow(own bool) backend.Overflow {
	o := backend.Auto
	if sl.rule != nil {
		o = sl.rule.Overflow
	}
	if o == backend.Auto && !own {
		return backend.Reject
	}
	return o
}

// ban makes a take of a limit of no requests, which has no bucket: more than the capacity
// of a bucket that nobody has, so that a call with other descriptors is denied by it as by
// any other, and charges what a denied call charges. It keeps no state in the store.
func ban(take backend.Take, period time.Duration) backend.Take {
	take.Limit = backend.Limit{Requests: 1, Burst: 1, Period: period}
	take.Hits, take.Give, take.Overflow = 2, 0, backend.Reject
	return take
}

// onFailures are the words of the rules for what the store calls the same.
var onFailures = [...]backend.OnFailure{
	descriptors.FailDefault: backend.FailDefault,
	descriptors.FailLocal:   backend.FailLocal,
	descriptors.FailAllow:   backend.FailAllow,
	descriptors.FailDeny:    backend.FailDeny,
}

// ask asks the store for the call's decisions, and waits for them.
func (c *call) ask(ctx context.Context) error {
	if c.needsStore() {
		if err := c.s.store.Take(ctx, c.takes, c.dst); err != nil {
			return c.undecided(err)
		}
	}
	c.decideBans()
	return nil
}

// askNow is ask for as long as that needs no waiting; else it reports false.
func (c *call) askNow() (ok bool, err error) {
	if c.needsStore() {
		if c.s.now == nil {
			return false, nil
		}
		if ok, err = c.s.now.TakeNow(c.takes, c.dst); !ok {
			return false, nil
		}
		if err != nil {
			return true, c.undecided(err)
		}
	}
	c.decideBans()
	return true, nil
}

// needsStore makes room for the decisions, and reports whether the store has a say in
// them: it has none in a call of nothing but bans.
func (c *call) needsStore() bool {
	c.dst = append(c.dst[:0], make([]backend.Decision, len(c.takes))...)
	if c.bans == len(c.takes) {
		return false
	}
	c.keyBans()
	return true
}

// decideBans decides the takes of bans, whatever a store has said of them.
func (c *call) decideBans() {
	if c.bans == 0 {
		return
	}
	for i := range c.slots {
		if sl := &c.slots[i]; sl.banned() {
			p := c.takes[sl.take].Limit.Period
			c.dst[sl.take] = backend.Decision{Wait: p, Full: p}
		}
	}
}

// keyBans gives the takes of bans keys in the slot of the first other one, so that they
// cost no round trip of their own.
func (c *call) keyBans() {
	if c.bans == 0 {
		return
	}
	var tag []byte
	for i := range c.takes {
		if key := c.takes[i].Key; key != nil {
			tag = key[:bytes.IndexByte(key, '}')+1]
			break
		}
	}
	for i := range c.takes {
		if c.takes[i].Key == nil {
			start := len(c.keys)
			c.keys = append(append(c.keys, tag...), '!')
			c.keys = strconv.AppendInt(c.keys, int64(i), 10)
			c.takes[i].OnFailure = backend.FailLocal // which denies it too
			c.takes[i].Key = c.keys[start:len(c.keys):len(c.keys)]
		}
	}
}
