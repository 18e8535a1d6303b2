// Package prefetch stands before a store that all instances share, and decides most calls
// on hot keys in memory, from tokens that it fetched ahead: a lease.
//
// # Why there is never one request too many
//
// Tokens that are fetched have left the bucket. That alone is not enough: while they lie
// here, the bucket would fill up again, and a burst would find a full bucket and the leases
// as well. So the bucket keeps count of what is out, and fills up to its capacity less that
// count at most (backend.Lease): its level and all leases together never exceed the
// capacity. A token that is admitted leaves this sum, and only the refill adds to it, so in
// any time t at most capacity + rate × t are admitted, by however many instances.
//
// What makes the count safe is that it can only be too high:
//
//   - An instance says with each ask how many tokens it still holds, and the bucket replaces
//     the last count for it by that and what it grants. If an ask or its answer is lost, or
//     arrives late, the instance does not refer to the last count any more, and the bucket
//     keeps it, with the new one beside it.
//   - The bucket forgets a count after one to two times backend.LeaseLife. A token may be
//     spent for less than one LeaseLife from the moment at which the ask was sent, by this
//     process' monotonic clock, and that is never later than when the bucket counted it.
//   - What a call did not use after all goes back by the next ask, never into the lease: an
//     ask may have been sent since, in which it was not counted.
//
// Two things are beyond this: a token that is taken from the bucket for a waiting call is
// admitted when the answer arrives, one way later; and a bucket that Redis lost is full.
//
// # Fixed windows
//
// A window that is leased from counts what is out as used. So in each window what is admitted,
// what is held and what is left are never more than its limit, as long as nothing that is of
// one window is used in another:
//
//   - A token may be spent until the window ends as the store told, counted from the moment at
//     which the ask was sent. That is before the moment at which the store counted it, so it is
//     never later than the end.
//   - An answer says which window it is of. If that is another one than that of what is held,
//     what is held is gone before the new tokens can be seen.
//   - What goes back says which window it is from, and the store ignores that of another one.
//
// Nothing comes back before a window ends. So there are no scarcity pauses; a denial is
// remembered for a small part of the window, in which others may have given tokens back, and
// never beyond its end. What an instance wishes to hold is no more than it will use before the
// end, and what it does not use as fast as it expected goes back at once.
//
// # One key
//
// An entry is made when a key is asked for again within half a second; most keys of many are
// not, and take no memory. As long as a key is cold its calls go to the store as they are. One
// that uses at least four tokens a second leases: calls take tokens from the entry, without a lock; at a low mark an ask is sent in the
// background; only if nothing is left do calls wait, and those that wait at the same time
// share an ask. There is never more than one ask of an entry in flight. The bucket grants a
// quarter of what is left of a fraction of all its tokens, so small limits never lease, and
// big ones lease less as they empty. Algorithms that cannot lease (backend.Algorithm.Leases)
// have no entries.
//
// Near empty, an entry comes back only when its share of the refill has brought what it took
// last, and until then its calls are denied here. Apart from that, a call is denied in
// memory if even a bucket that nobody else takes from could not pay it by now, as far as
// the store told in the last second. Tokens that are not used in time go back.
//
// The other store may be one that something stands in for while it is away. Such an answer
// (Decision.Source) decides calls, but no lease comes of it; what is held is spent until its
// time ends.
//
// # Several takes
//
// A call of several takes is answered in memory if all of them can be decided there.
// Otherwise the takes that can be paid here are, and the rest goes to the store as one call,
// which charges all or none; if that is denied, what was taken here goes back.
package prefetch
