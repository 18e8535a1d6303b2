// Package backend holds what a rate limit is made of once the rules have been matched: a
// Limit, the Takes that one call asks of its buckets, the Decisions that come back, and the
// arithmetic of a Bucket as pure functions of a state, a limit and a time.
//
// The arithmetic here is the specification: Settle decides a call, and the Lua script of
// redisstore is fuzzed against it. Nothing here knows gRPC, YAML, Redis or files. The
// stores live in sub-packages (memstore, redisstore) and pass one suite (storetest).
//
// # Algorithms
//
// Of a limit of n tokens per period p and, for a bucket, a capacity of b:
//
//	algorithm       at most in any time t       in Redis, for each key beside its name
//	token bucket    b + n × t/p                 56 bytes
//	leaky bucket    b + n × t/p, b small        56 bytes
//	fixed window    n in each window of p;      24 bytes, 48 with leases
//	                2n within p at an edge
//	sliding window  about n in p                32 bytes
//	sliding log     n in p                      about 130 bytes for each token, 30 in short logs
//
// To that comes what Redis needs for any key, 60 to 70 bytes and its name. In memory each
// key takes about 250 bytes and its name, and a sliding log 24 for each token more. A
// bucket that is full again takes nothing.
//
// Each algorithm is a file here with a type that implements meter, and a Lua file of the
// same name in redisstore. They are listed in Bucket.meter and in take.lua, and nowhere
// else.
//
// # Leases
//
// Tokens of a bucket may be handed out to an instance ahead of their use (Lease), by the
// algorithms to which it makes no difference when they are used then; Algorithm.Leases says
// which those are, and why the others are not.
//
// # A changed limit
//
// A bucket of tokens keeps its level: a raise of the capacity gives the difference at once
// and only once, a lowering clamps the level. The windows and the log keep what was taken,
// and compare it with the limit in force: a raise gives the difference at once, and after a
// lowering no more passes than the new limit allows for the window or the last period.
//
// # A debt
//
// A charge that Overflow makes a debt is taken down to a level of minus the capacity. A
// bucket of tokens pays it back at its rate. In the windows and the log it is gone with the
// hits that made it: at the end of a fixed window, after two periods at most of a sliding
// window, after one in a log.
package backend
