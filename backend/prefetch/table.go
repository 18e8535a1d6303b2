package prefetch

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// table has the entries by their keys. It is read without a lock, as each list of entries
// is a chain of atomic pointers; changes of a list are made under one of some locks.
type table struct {
	seed  maphash.Seed
	heads []atomic.Pointer[entry] // a power of two of them
	locks [64]sync.Mutex
	count atomic.Int64
	most  int64
}

func newTable(most int) *table {
	heads := 64
	for heads < most/2 {
		heads *= 2
	}
	return &table{seed: maphash.MakeSeed(), heads: make([]atomic.Pointer[entry], heads), most: int64(most)}
}

// find returns the entry of a key, or nil, and the key's hash.
func (t *table) find(key []byte) (*entry, uint64) {
	hash := maphash.Bytes(t.seed, key)
	for e := t.head(hash).Load(); e != nil; e = e.next.Load() {
		if e.hash == hash && e.key == string(key) {
			return e, hash
		}
	}
	return nil, hash
}

// add returns the entry of a key, which is made if there is none and room for one.
func (t *table) add(key []byte, hash uint64, z *size) *entry {
	lock := t.lock(hash)
	lock.Lock()
	defer lock.Unlock()
	if e, _ := t.find(key); e != nil {
		return e
	}
	if t.count.Load() >= t.most {
		return nil
	}
	t.count.Add(1)
	e := &entry{hash: hash, key: string(key)}
	e.size.Store(z)
	head := t.head(hash)
	e.next.Store(head.Load())
	head.Store(e)
	return e
}

// sweep drops entries of one part of so many, where drop agrees. Someone may still hold an
// entry that was dropped.
func (t *table) sweep(n, parts int, drop func(*entry) bool) {
	for i := n * len(t.heads) / parts; i < (n+1)*len(t.heads)/parts; i++ {
		if t.heads[i].Load() != nil {
			t.sweepList(uint64(i), drop)
		}
	}
}

func (t *table) sweepList(head uint64, drop func(*entry) bool) {
	lock := t.lock(head)
	lock.Lock()
	defer lock.Unlock()
	at := t.head(head)
	for e := at.Load(); e != nil; e = at.Load() {
		if drop(e) {
			at.Store(e.next.Load())
			t.count.Add(-1)
			continue
		}
		at = &e.next
	}
}

func (t *table) head(hash uint64) *atomic.Pointer[entry] {
	return &t.heads[hash&uint64(len(t.heads)-1)]
}

// lock is over the list of a hash, since there are more lists than locks.
func (t *table) lock(hash uint64) *sync.Mutex { return &t.locks[hash%uint64(len(t.locks))] }
