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
		case l.Algorithm > SlidingLog:
			return fmt.Errorf("taking: algorithm %d is unknown", l.Algorithm)
		case l.Requests == 0 || l.Burst == 0 || period(l) == 0:
			return errors.New("taking: requests, burst or period of the limit is 0")
		case takes[i].Lease != nil && !takes[i].Lease.valid(&takes[i], len(takes) == 1):
			return errors.New("taking: a take that cannot have its lease")
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
	before := b.snapshot()
	m, _ := b.open(t, now)
	left := m.left(&t.Limit)
	debt := t.Hits > 0 && (t.Overflow == Debt || (t.Overflow == Auto && b.looked > now))
	b.restore(&before)
	if t.Hits == 0 && t.Give > 0 {
		return Decision{OK: true}
	}
	need := t.need(debt)
	return Decision{OK: left >= need-slack(need), Debt: debt}
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
	before := b.snapshot()
	m, back := b.open(t, now)
	changed := b.charge(m, t, denied, d) || back
	d.Level = m.left(l)
	d.Full = duration(m.wait(l, now, l.Capacity()))
	if !d.OK {
		d.Wait = duration(m.wait(l, now, min(t.need(d.Debt), l.Capacity())))
	}
	marked := t.Look() && t.Overflow == Auto
	if marked {
		b.looked = max(b.looked, now+period(l))
	}
	b.keep(m, l, now)
	if !changed {
		b.revert(&before, t, now, marked)
	}
	if b.expires <= now {
		*b = Bucket{}
	}
}

// charge takes and gives what the take asks for, if the call passes, and sees to its lease.
// It reports whether any of that was done.
func (b *Bucket) charge(m meter, t *Take, denied bool, d *Decision) bool {
	l := &t.Limit
	taken := t.Hits > 0 && (d.Debt || (d.OK && !denied))
	given := t.Give > 0 && (d.Debt || d.OK) && !denied
	if taken {
		hits, most := t.payable(m.left(l)), m.left(l)+l.Capacity()
		m.take(l, min(hits, most))
		d.Charged = uint64(min(hits, most+slack(most)))
	}
	if given {
		m.give(l, float64(min(t.Give, MaxHits)))
	}
	if t.Lease != nil {
		all := float64(min(t.Hits, MaxHits)) * float64(min(max(t.Lease.Calls, 1), MaxHits))
		m.(leaser).lease(t, (t.Hits == 0 && d.OK) || (taken && float64(d.Charged) >= all)) //nolint:errcheck // see Check
	}
	return taken || given || t.Lease != nil
}

// revert makes the bucket what it was before a take that took nothing, but for the mark of
// a look and for how long it is kept: a limit that fills more slowly keeps it longer.
func (b *Bucket) revert(before *snapshot, t *Take, now float64, marked bool) {
	looked, expires := b.looked, b.expires
	fresh := before.bucket.expires <= now || before.bucket.algorithm != t.Limit.Algorithm
	if fresh && marked {
		return
	}
	b.restore(before)
	if marked || (!t.Look() && !fresh) {
		b.looked, b.expires = looked, expires
	}
}
