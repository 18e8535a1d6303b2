// Package failover stands before a store that can be slow or away, and sees to it that a
// call is answered in time, by each rule's choice.
//
// # Budget
//
// No take waits longer than the budget, or than its caller does less a margin in which the
// caller can still be answered. The budget is the waiter's: it leaves, and the command goes
// on, since a connection with a half-read answer would have to be closed. What comes late
// still counts (see Local shares). Calls in flight have a bound; one beyond it
// is decided by backend.OnFailure at once.
//
// # Breaker
//
// Each server of the store has a breaker. It opens when half of what was asked of the
// server within half a second failed or was slow, or five in a row over 50 ms; never on one
// late answer. While it is open nobody waits for that server. Probes, which are no caller's
// call, find out that it is back, with jitter so that many instances do not knock at once;
// two good ones in a row close the breaker. The takes of other servers go on as ever. Of a
// call that needs both, the store is asked first; what it charged goes back if a take that
// it was not asked for denies the call.
//
// # Local shares
//
// A take with backend.FailLocal is decided by a bucket of this process with 1/N of the
// limit's rate and capacity, N being the number of instances, and one token at least. It
// begins with 1/N of the level that the store told last, so that who was denied stays
// denied. What it lets through is owed to the store: with the first call after the outage
// the store's bucket is charged, so that the outage gives nobody a second bucket. A late
// answer of the store that charged the call settles that, or, if the call was denied here,
// is given back.
package failover
