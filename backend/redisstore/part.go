package redisstore

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// part is what one run of the script decides of a call: takes whose keys lie in one slot of
// a cluster, maxKeys at most. It holds nothing of the caller's but the leases and where the answers go.
type part struct {
	// indices are the places of the takes in the call.
	indices []int
	keys    []string
	takes   []backend.Take // without keys
	slot    uint16         // on a cluster
	queued  time.Time

	// dst are the decisions of the whole call.
	dst []backend.Decision
	// then goes on with the call of this part alone, several with that of many.
	then    backend.Continuation
	several *several
}

var parts = sync.Pool{New: func() any { return new(part) }}

// newPart makes a part without takes for a call whose decisions go to dst.
func newPart(dst []backend.Decision) *part {
	p, _ := parts.Get().(*part)
	p.indices = p.indices[:0]
	p.dst = dst
	return p
}

// release makes room for another part. Nobody may use p any more.
func (p *part) release() {
	clear(p.keys)
	clear(p.takes)
	p.keys, p.takes = p.keys[:0], p.takes[:0]
	p.dst, p.then, p.several = nil, nil, nil
	parts.Put(p)
}

// add puts a take into the part.
func (p *part) add(index int, key string, t *backend.Take) {
	p.indices = append(p.indices, index)
	p.keys = append(p.keys, key)
	p.takes = append(p.takes, *t)
	p.takes[len(p.takes)-1].Key = nil
}

// read reads the part's answers.
func (p *part) read(reply []byte) error {
	if len(reply) != len(p.indices)*answerSize {
		return fmt.Errorf("reply of %d bytes for %d takes", len(reply), len(p.indices))
	}
	for n, i := range p.indices {
		readAnswer(reply[n*answerSize:], &p.dst[i], p.takes[n].Lease)
	}
	return nil
}

// end reads the part's answers, if there are any, and goes on with its call. The part is
// used up then.
func (p *part) end(reply []byte, err error) backend.Flusher {
	if err == nil {
		err = p.read(reply)
	}
	if err != nil {
		err = wrap("taking from Redis", err)
	}
	if p.several != nil {
		return p.several.ended(p, err)
	}
	then := p.then
	p.release()
	return then.Done(err)
}

// split deals the takes of a call out to scripts: one for each slot of a cluster, and none
// too long. partial tells them whether there are others.
func (s *Store) split(takes []backend.Take, dst []backend.Decision) []*part {
	var room [4]*part
	all := room[:0]
	for i := range takes {
		key := s.prefix + string(takes[i].Key)
		var of uint16
		if s.cluster {
			of = slot([]byte(key))
		}
		n := slices.IndexFunc(all, func(p *part) bool { return p.slot == of && len(p.indices) < maxKeys })
		if n < 0 {
			n = len(all)
			all = append(all, newPart(dst))
			all[n].slot = of
		}
		all[n].add(i, key, &takes[i])
	}
	return slices.Clone(all)
}
