package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
)

// nodes knows which node of a cluster was asked last for each slot, unless it said that it
// is not the one. It learns that from the commands, so what it says is what happens,
// whatever the cluster believes of itself.
type nodes struct {
	slots [slots]atomic.Int32 // places in known, plus 1; 0: not known

	store *Store

	mu    sync.Mutex // over changes of known
	known atomic.Pointer[[]*node]
}

// node is one of them, with what waits for it.
type node struct {
	name  string
	group group
}

// at is the node of a slot; nil if that is not known.
func (n *nodes) at(slot uint16) *node {
	if place := n.slots[slot].Load(); place > 0 {
		return (*n.known.Load())[place-1]
	}
	return nil
}

// of names the node of a slot; empty if that is not known.
func (n *nodes) of(slot uint16) string {
	if node := n.at(slot); node != nil {
		return node.name
	}
	return ""
}

// join notes a client of a node: a new one, or one that was away.
func (s *Store) join(name string, client commander) {
	place := s.nodes.place(name)
	g := &(*s.nodes.known.Load())[place-1].group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.client = client
}

// learn notes who answered for a slot.
func (n *nodes) learn(slot uint16, name string) {
	if n.of(slot) == name {
		return
	}
	n.slots[slot].Store(n.place(name))
}

// place gives the number of a name, a new one if it has none.
func (n *nodes) place(name string) int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var known []*node
	if old := n.known.Load(); old != nil {
		known = *old
	}
	i := slices.IndexFunc(known, func(one *node) bool { return one.name == name })
	if i < 0 {
		i, known = len(known), append(slices.Clone(known), &node{name: name, group: group{store: n.store}})
		n.known.Store(&known)
	}
	return int32(i + 1)
}

// forget unlearns all slots of a node.
func (n *nodes) forget(name string) {
	place := n.place(name)
	for i := range n.slots {
		n.slots[i].CompareAndSwap(place, 0)
	}
}

// slot gives some slot that a node answers for.
func (n *nodes) slot(name string) (int, bool) {
	place := n.place(name)
	for i := range n.slots {
		if n.slots[i].Load() == place {
			return i, true
		}
	}
	return 0, false
}

// tags has a hash tag for each slot.
var tags = sync.OnceValue(func() []string {
	tags := make([]string, slots)
	for i, missing := 0, slots; missing > 0; i++ {
		tag := strconv.Itoa(i)
		if of := slot([]byte(tag)); tags[of] == "" {
			tags[of], missing = tag, missing-1
		}
	}
	return tags
})

// Server names the server of a cluster that was asked last for the slot of a take's key;
// empty if none was yet. Without a cluster it is always empty.
func (s *Store) Server(key []byte) string {
	if !s.cluster {
		return ""
	}
	return s.nodes.of(s.slotOf(key))
}

// slotOf is the slot of a take's key.
func (s *Store) slotOf(key []byte) uint16 {
	var room [128]byte
	return slot(append(append(room[:0], s.prefix...), key...))
}

// probeLimit is that of a bucket that nobody uses up, and that is full again at once.
var probeLimit = backend.Limit{Requests: 1e6, Period: time.Second, Burst: 1e6}

// Probe takes a token from a bucket of its own on a server that Server has named, which
// needs everything that a call needs: the script, a write, room in memory. On a cluster it
// goes to whoever serves the server's slots by now; if that is another one, Server says so
// from then on.
func (s *Store) Probe(ctx context.Context, server string) error {
	key := s.other("probe")
	probed, known := 0, false
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
		if probed, known = s.nodes.slot(server); known {
			key += ":{" + tags()[probed] + "}"
		}
	}
	p := newPart(make([]backend.Decision, 1))
	p.add(0, key, &backend.Take{Limit: probeLimit, Hits: 1})
	p.slot = slot([]byte(key))
	defer p.release()
	reply, err := s.run(ctx, []*part{p})
	if err == nil {
		err = p.read(reply)
	}
	if err != nil {
		err := wrap("taking from Redis", err)
		if err.kind == KindReadOnly {
			s.dropReadOnly(ctx)
		}
		return err
	}
	if known && s.nodes.of(uint16(probed)) != server {
		s.nodes.forget(server)
	}
	return nil
}

// dropReadOnly gets rid of connections to what was a master and is a replica now, as they
// stay when a name or an address moves. The client drops one whose reply begins with
// READONLY; before Redis 7 that of a script does not, and that of SET does.
func (s *Store) dropReadOnly(ctx context.Context) {
	for range s.Pool().Idle + 1 {
		if err := s.client.Set(ctx, s.other("probe"), 0, time.Millisecond).Err(); !redis.HasErrorPrefix(err, "READONLY") {
			return
		}
	}
}

// other is the key of something that is no bucket.
func (s *Store) other(name string) string {
	return s.prefix[:len(s.prefix)-len(version)] + "sluice:" + name
}

// nodeHook tells of what one node of a cluster answers.
type nodeHook struct {
	store *Store
	name  string
}

var _ redis.Hook = nodeHook{}

// DialHook is part of redis.Hook.
func (h nodeHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is part of redis.Hook.
func (h nodeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.tell(cmd, began, err)
		return err
	}
}

// ProcessPipelineHook is part of redis.Hook. The client follows an ASK by a pipeline that
// begins with ASKING: whoever answers that does not serve the slot yet.
func (h nodeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		if len(cmds) > 0 && cmds[0].Name() != "asking" {
			for _, cmd := range cmds {
				h.tell(cmd, began, cmd.Err())
			}
		}
		return err
	}
}

// tell passes on what a node said to a script. An error by which it says that it is not
// the one to ask, or that it needs the script's text, is an answer.
func (h nodeHook) tell(cmd redis.Cmder, began time.Time, err error) {
	c, ok := cmd.(once)
	if !ok {
		return
	}
	elsewhere := redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
	if !elsewhere {
		h.store.nodes.learn(c.slot, h.name)
	}
	if elsewhere || redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = nil
	}
	if err != nil {
		err = wrap("asking a node", err)
	}
	h.store.answered(h.name, time.Since(began), err)
}
