// Package redisstore keeps buckets in Redis, where all instances share them: one server,
// a master found by Sentinel, or a Redis Cluster; Redis 6.2 or later.
//
// # One call
//
// The takes of a call are decided by a script, whose files are put together in script.go. It
// reads, decides and writes in one step by Redis' own clock. It is called by its digest, and
// once more with its text if Redis does not know it (after a restart or SCRIPT FLUSH): the only
// command that is sent again, beside those that a node of a cluster says are not for it, since
// Redis says that it did not run. An answer that is lost or late may have charged, so it is an
// error and nothing else.
//
// # Many calls
//
// What waits for a server at the same time goes there together (group.go): as runs of the
// script that decide many calls one after the other, in one pipeline. On a cluster a run is for
// one slot, and each node has its own pipelines.
//
// # Keys
//
// A bucket's key is the prefix, "rl1:" and the key of the take. The 1 is the version of
// key and value. Each key has a time to live: until the bucket is as if nobody had touched
// it, that is full, or the mark of a look ended, and never more than ten years. No other
// key is read or written, and none is ever scanned.
//
// # Several slots
//
// A script of a cluster touches keys of one slot, and any script at most maxKeys keys, so
// that it does not hold up the others for long. A call whose takes need several scripts
// runs them side by side. Each decides its own takes and charges them. Once all have
// answered, what must not have been charged is given back, and what was to be given back
// in a call that passes is given: one round trip more, for such calls only. Until then,
// which is about one round trip, another call can find fewer tokens than there will be,
// never more. If an instance dies in that time, they stay taken.
package redisstore
