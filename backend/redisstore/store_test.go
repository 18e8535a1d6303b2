package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/redisstore"
	"github.com/sluice-rls/sluice/backend/storetest"
	"github.com/sluice-rls/sluice/internal/proc"
)

const day = 24 * time.Hour

// perDay is a take of a bucket of so many tokens a day.
func perDay(key string, tokens, hits uint64) backend.Take {
	return backend.Take{Key: []byte(key), Limit: backend.Limit{Requests: tokens, Period: day, Burst: tokens}, Hits: hits}
}

// take makes a call that must be answered.
func take(t *testing.T, store backend.Store, takes ...backend.Take) []backend.Decision {
	t.Helper()
	got := make([]backend.Decision, len(takes))
	if err := store.Take(t.Context(), takes, got); err != nil {
		t.Fatalf("Take(%+v): %v", takes, err)
	}
	return got
}

// client opens a client of the test's own.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the server goes with the test
	return c
}

// R62, R120: keys live as long as it takes to fill them, in milliseconds.
func TestTimeToLive(t *testing.T) {
	addr, _ := proc.Redis(t)
	store, c := open(t, redisstore.Options{Addrs: []string{addr}, KeyPrefix: "p:"}), client(t, addr)
	f := func(name string, want time.Duration, takes ...backend.Take) {
		t.Helper()
		for i := range takes {
			takes[i].Key = []byte(name)
			take(t, store, takes[i])
		}
		// Redis says -2 ms for a key that is not there.
		got := c.PTTL(t.Context(), "p:rl1:"+name).Val()
		if want == 0 && got != -2 || want != 0 && (got > want+time.Second || got < want-30*time.Second) {
			t.Errorf("%s: PTTL %v, want %v", name, got, want)
		}
	}
	f("half", 12*time.Hour, perDay("", 10, 5))
	f("all", day, perDay("", 10, 10))
	f("debt", 2*day, backend.Take{Limit: perDay("", 10, 0).Limit, Hits: 99, Overflow: backend.Debt})
	f("denied", 0, perDay("", 10, 11))
	f("look", 0, perDay("", 10, 0))
	f("refund of a full bucket", 0, backend.Take{Limit: perDay("", 10, 0).Limit, Give: 3})
	f("refund to full", 0, perDay("", 10, 5), backend.Take{Limit: perDay("", 10, 0).Limit, Give: 5})
	mark := backend.Take{Limit: perDay("", 10, 0).Limit, Overflow: backend.Auto}
	f("mark", day, mark)
	f("mark of a used bucket", day, perDay("", 10, 5), mark)
	f("mark of an empty bucket", day, mark, perDay("", 10, 10))
	f("lowered", 2*day, perDay("", 10, 10), perDay("", 5, 1))
	f("raised and denied", day/2, perDay("", 10, 10), perDay("", 20, 11))
	// Of a window: its end, and the end of the next.
	evening := time.Until(time.Now().Truncate(day).Add(day))
	with := func(a backend.Algorithm, take backend.Take) backend.Take {
		take.Limit.Algorithm = a
		return take
	}
	f("fixed window", evening, with(backend.FixedWindow, perDay("", 10, 1)))
	f("sliding window", evening+day, with(backend.SlidingWindow, perDay("", 10, 1)))
	f("sliding log", day, with(backend.SlidingLog, perDay("", 10, 1)))
	for a := range backend.SlidingLog + 1 {
		name := strconv.Itoa(int(a))
		f(name+" denied", 0, with(a, perDay("", 10, 11)))
		f(name+" look", 0, with(a, perDay("", 10, 0)))
		f(name+" refund to full", 0, with(a, perDay("", 10, 5)), with(a, backend.Take{Limit: perDay("", 10, 0).Limit, Give: 5}))
		f(name+" mark", day, with(a, mark))
		f(name+" mark, refund to full", day, with(a, mark), with(a, perDay("", 10, 5)), with(a, backend.Take{Limit: perDay("", 10, 0).Limit, Give: 5}))
	}
	decade := perDay("", 1, 4_000_000_000)
	decade.Limit = backend.Limit{Requests: 1, Period: 365 * day, Burst: 4_000_000_000}
	f("decade", backend.MaxIdle, decade)
	mark.Limit.Period = 100 * 365 * day
	f("mark of a decade", backend.MaxIdle, mark)
}

func TestExpiredIsFull(t *testing.T) {
	addr, _ := proc.Redis(t)
	store, c := open(t, redisstore.Options{Addrs: []string{addr}}), client(t, addr)
	quick := backend.Take{Key: []byte("k"), Limit: backend.Limit{Requests: 100, Period: time.Second, Burst: 10}, Hits: 10}
	for range 3 {
		if got := take(t, store, quick)[0]; !got.OK || got.Level != 0 {
			t.Fatalf("%+v, want a full bucket that is drained", got)
		}
		for c.Exists(t.Context(), "rl1:k").Val() != 0 {
			runtime.Gosched() // 100 ms
		}
	}
}

func TestRedisTime(t *testing.T) {
	addr, _ := proc.Redis(t)
	store := open(t, redisstore.Options{Addrs: []string{addr}})
	slow := backend.Take{Key: []byte("k"), Limit: backend.Limit{Requests: 20, Period: time.Second, Burst: 1}, Hits: 1}
	began := time.Now()
	for passed := 0; passed < 5; {
		if take(t, store, slow)[0].OK {
			passed++
		}
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("five calls at 20 a second passed in %v, want 200 ms and little more", took)
	}
}

// R75, R76: only a script that Redis does not know is sent again.
func TestScriptFlushed(t *testing.T) {
	addr, p := proc.Redis(t)
	store, c := open(t, redisstore.Options{Addrs: []string{addr}}), client(t, addr)
	for i := range 3 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got := take(t, store, perDay("k", 10, 1))[0]; got.Remaining() != uint64(9-i) {
			t.Errorf("%d tokens after take %d, want %d: each charged once", got.Remaining(), i, 9-i)
		}
	}
	// A server that was restarted knows neither script nor buckets, and is at the same place.
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	proc.RedisOn(t, number)
	var got [1]backend.Decision
	for range 20 { // connections that broke are found one by one
		if store.Take(t.Context(), []backend.Take{perDay("k", 10, 1)}, got[:]) == nil {
			break
		}
	}
	if got[0].Remaining() != 9 {
		t.Errorf("%+v from the new server, want a level of 9", got[0])
	}
}

func TestStrangeValues(t *testing.T) {
	addr, _ := proc.Redis(t)
	store, c := open(t, redisstore.Options{Addrs: []string{addr}}), client(t, addr)
	notANumber := strings.Repeat("\xff", 56)
	infinite := "\x00\x00\x00\x00\x00\x00\xf0\x7f" + strings.Repeat("\x00", 48)
	for _, value := range []string{"", "5", notANumber, notANumber[:24], notANumber[:32], infinite, strings.Repeat("x", 57)} {
		for algorithm := range backend.SlidingLog + 1 {
			if err := c.Set(t.Context(), "rl1:k", value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			call := perDay("k", 10, 4)
			call.Limit.Algorithm = algorithm
			if got := take(t, store, call)[0]; !got.OK || got.Level != 6 {
				t.Errorf("algorithm %d over the value %q: %+v, want a level of 6", algorithm, value, got)
			}
			if ttl := c.TTL(t.Context(), "rl1:k").Val(); ttl < 0 {
				t.Errorf("algorithm %d over the value %q: no time to live", algorithm, value)
			}
		}
	}
	for algorithm := range backend.SlidingLog + 1 {
		for _, command := range [][]any{{"RPUSH", "rl1:k", "x"}, {"SADD", "rl1:k", "x"}, {"ZADD", "rl1:k", 1, "x"}} {
			if err := errors.Join(c.Del(t.Context(), "rl1:k").Err(), c.Do(t.Context(), command...).Err()); err != nil {
				t.Fatal(err)
			}
			call := perDay("k", 10, 4)
			call.Limit.Algorithm = algorithm
			if got := take(t, store, call)[0]; !got.OK || got.Level != 6 {
				t.Errorf("algorithm %d over what %v has made: %+v, want a level of 6", algorithm, command, got)
			}
		}
	}
}

// R77, R119: a call touches the keys it names and no other.
func TestKeys(t *testing.T) {
	addr, _ := proc.Redis(t)
	a := open(t, redisstore.Options{Addrs: []string{addr}, KeyPrefix: "a:"})
	b := open(t, redisstore.Options{Addrs: []string{addr}, KeyPrefix: "b:"})
	take(t, a, perDay("{shop-a}:x", 10, 10))
	if got := take(t, b, perDay("{shop-a}:x", 10, 1))[0]; !got.OK {
		t.Errorf("%+v: two prefixes share a bucket (R80)", got)
	}
	keys := client(t, addr).Keys(t.Context(), "*").Val()
	if len(keys) != 2 || !strings.HasSuffix(keys[0], ":rl1:{shop-a}:x") {
		t.Errorf("keys %q, want a:rl1:{shop-a}:x and b:rl1:{shop-a}:x", keys)
	}
}

// TestMemory holds the server to the bytes for each key that package backend states.
func TestMemory(t *testing.T) {
	addr, _ := proc.Redis(t)
	store, c := open(t, redisstore.Options{Addrs: []string{addr}}), client(t, addr)
	f := func(algorithm backend.Algorithm, tokens int, most int64) {
		t.Helper()
		call := perDay("{4:edge7:api_key6:shop-a}:"+strconv.Itoa(tokens), 1_000_000, 1)
		call.Limit.Algorithm = algorithm
		for range tokens {
			take(t, store, call)
		}
		if got := c.MemoryUsage(t.Context(), "rl1:"+string(call.Key)).Val(); got == 0 || got > most {
			t.Errorf("algorithm %d: %d bytes for a key with %d tokens taken, want %d at most", algorithm, got, tokens, most)
		}
		c.FlushAll(t.Context())
	}
	f(backend.TokenBucket, 2, 56+110)
	f(backend.LeakyBucket, 2, 56+110)
	f(backend.FixedWindow, 2, 24+110)
	f(backend.SlidingWindow, 2, 32+110)
	f(backend.SlidingLog, 100, 100*30+250)
	f(backend.SlidingLog, 1000, 1000*145+1000)
}

func TestSlot(t *testing.T) {
	addr, _ := proc.Redis(t, "--cluster-enabled", "yes")
	c := client(t, addr)
	keys := []string{
		"", "a", "123456789", "{", "}", "{}", "{}a", "{a}", "{a}b", "x{a}b", "x{a}b{c}d", "x{}b{c}d", "x{{a}}b", "x{a", "x}a{b}",
		"\x00\xff{\xfe}\x01", strings.Repeat("x", 70_000),
	}
	source := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		key := make([]byte, source.IntN(30))
		for i := range key {
			key[i] = "abc{}:\x00\xff"[source.IntN(8)]
		}
		keys = append(keys, string(key))
	}
	for _, key := range keys {
		want, err := c.ClusterKeySlot(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got := redisstore.Slot(key); int64(got) != want {
			t.Errorf("Slot(%.40q) = %d, want %d as CLUSTER KEYSLOT says", key, got, want)
		}
	}
}

// TestProcesses lets eight processes at one bucket.
func TestProcesses(t *testing.T) {
	const variable = "SLUICE_TEST_STORM"
	call := []backend.Take{perDay("k", 100, 1)}
	if addr, ok := os.LookupEnv(variable); ok {
		store := open(t, redisstore.Options{Addrs: []string{addr}})
		os.Stdout.WriteString("passed=" + strconv.Itoa(storetest.Storm(t, store, call, 250)) + "\n") //nolint:errcheck // the parent misses it
		return
	}
	addr, _ := proc.Redis(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	commands := make([]*exec.Cmd, 8)
	outputs := make([]strings.Builder, len(commands))
	for i := range commands {
		commands[i] = exec.CommandContext(t.Context(), program, "-test.run=^TestProcesses$", "-test.count=1")
		commands[i].Env = append(os.Environ(), variable+"="+addr)
		commands[i].Stdout = &outputs[i]
		if err := commands[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	sum := 0
	for i, command := range commands {
		if err := command.Wait(); err != nil {
			t.Errorf("process %d: %v\n%s", i, err, outputs[i].String())
		}
		var passed int
		if _, err := fmt.Sscanf(outputs[i].String(), "passed=%d", &passed); err != nil {
			t.Errorf("process %d: %v in %q", i, err, outputs[i].String())
		}
		sum += passed
	}
	if sum != 100 {
		t.Errorf("%d of 2000 calls of 8 processes passed, want 100", sum)
	}
}
