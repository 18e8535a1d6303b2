package backend_test

import (
	"fmt"
	"time"

	"github.com/sluice-rls/sluice/backend"
)

// A store keeps the buckets, tells the time, and has each call settled.
func ExampleSettle() {
	takes := []backend.Take{
		{Key: []byte("shop-a"), Limit: backend.Limit{Requests: 100, Period: time.Second, Burst: 200}, Hits: 1},
		{Key: []byte("shop-a/orders"), Limit: backend.Limit{Requests: 1, Period: time.Minute, Burst: 1}, Hits: 1},
	}
	buckets := []*backend.Bucket{{}, {}}
	decisions := make([]backend.Decision, len(takes))

	now := int64(1_796_000_000_000_000) // microseconds since 1970
	for range 2 {
		backend.Settle(takes, buckets, now, decisions)
		fmt.Println("denied:", backend.Denied(takes, decisions))
		for i, d := range decisions {
			fmt.Printf("  %s: ok %v, %d left, wait %v\n", takes[i].Key, d.OK, d.Remaining(), d.Wait)
		}
	}
	// Output:
	// denied: false
	//   shop-a: ok true, 199 left, wait 0s
	//   shop-a/orders: ok true, 0 left, wait 0s
	// denied: true
	//   shop-a: ok true, 199 left, wait 0s
	//   shop-a/orders: ok false, 0 left, wait 1m0s
}
