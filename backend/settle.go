package backend

import (
	"errors"
	"fmt"
)

// Check reports takes that no store can decide: a mistake of the program, not of a
// client.
func Check(takes []Take, dst []Decision) error {
	if len(dst) != len(takes) {
		return fmt.Errorf("taking: %d decisions for %d takes", len(dst), len(takes))
	}
	for i := range takes {
		l := &takes[i].Limit
		switch {
		case l.Algorithm != TokenBucket && l.Algorithm != LeakyBucket:
			return fmt.Errorf("taking: algorithm %d is unknown", l.Algorithm)
		case l.Requests == 0 || l.Burst == 0 || period(l) == 0:
			return errors.New("taking: requests, burst or period of the limit is 0")
		}
	}
	return nil
}

// Settle decides one call at a time and changes its buckets. buckets[i] is that of
// takes[i], the zero value if there is none yet; dst[i] becomes its decision. now is the
// time of the store's clock in microseconds since 1970.
//
// This is the specification of a Store: everything else of a store is where it keeps its
// buckets. A bucket that the call takes nothing from keeps its level and its time as they
// were, so that a stream of denied calls adds no rounding.
func Settle(takes []Take, buckets []*Bucket, now int64, dst []Decision) {
	micros := float64(now)
	for i := range takes {
		dst[i] = buckets[i].assess(&takes[i], micros)
	}
	denied := Denied(takes, dst)
	for i := range takes {
		buckets[i].settle(&takes[i], micros, denied, &dst[i])
	}
}

// Denied reports whether the call of these takes charges nothing but its debts: an
// Enforce take cannot be paid, or none of the Quota takes can. It needs the fields OK and
// Debt of the decisions.
func Denied(takes []Take, dst []Decision) bool {
	quota, paid := false, false
	for i := range takes {
		switch takes[i].Mode {
		case Enforce:
			if !dst[i].OK && !dst[i].Debt {
				return true
			}
		case Quota:
			quota = true
			paid = paid || dst[i].OK
		case Shadow:
		}
	}
	return quota && !paid
}

// assess says whether the take could be paid, and changes nothing.
func (b *Bucket) assess(t *Take, now float64) Decision {
	view := *b
	view.open(&t.Limit, now)
	debt := t.Hits > 0 && (t.Overflow == Debt || (t.Overflow == Auto && view.looked > now))
	if t.Hits == 0 && t.Give > 0 {
		return Decision{OK: true}
	}
	need := t.need(debt)
	return Decision{OK: view.tokens.level >= need-slack(need), Debt: debt}
}

// need is the number of tokens that must be there for the take to be OK.
func (t *Take) need(debt bool) float64 {
	if t.Hits == 0 || debt {
		return 1
	}
	return float64(min(t.Hits, MaxHits))
}

// settle charges the take if the call passes, and completes its decision.
func (b *Bucket) settle(t *Take, now float64, denied bool, d *Decision) {
	l := &t.Limit
	view := *b
	view.open(l, now)
	taken := t.Hits > 0 && (d.Debt || (d.OK && !denied))
	given := t.Give > 0 && (d.Debt || d.OK) && !denied
	if taken {
		d.Charged = view.pay(t, d.Debt)
	}
	if given {
		view.tokens.give(l, float64(min(t.Give, MaxHits)))
	}
	b.become(&view, t, now, taken || given)
	d.Level = view.tokens.level
	d.Full = duration(view.tokens.wait(l, now, float64(l.Burst)))
	if !d.OK {
		d.Wait = duration(view.tokens.wait(l, now, min(t.need(d.Debt), float64(l.Burst))))
	}
}

// become takes over what a take made of the bucket: all of it if tokens changed, else the
// mark of a look and how long the bucket is kept.
func (b *Bucket) become(view *Bucket, t *Take, now float64, changed bool) {
	marked := t.Look() && t.Overflow == Auto
	if marked {
		view.looked = max(view.looked, now+period(&t.Limit))
	}
	view.keep(&t.Limit, now)
	switch fresh := b.expires <= now; {
	case changed, marked && fresh:
		*b = *view
	case marked, !t.Look() && !fresh:
		// The level stays as it was, and a limit that fills more slowly keeps it longer.
		b.looked, b.expires = view.looked, view.expires
	}
	if b.expires <= now {
		*b = Bucket{}
	}
}

// pay takes the hits and returns how many whole tokens it took.
func (b *Bucket) pay(t *Take, debt bool) uint64 {
	hits := float64(min(t.Hits, MaxHits))
	if !debt {
		b.tokens.charge(hits)
		return uint64(hits)
	}
	most := b.tokens.level + float64(t.Limit.Burst)
	b.tokens.owe(&t.Limit, hits)
	return uint64(min(hits, most+slack(most)))
}
