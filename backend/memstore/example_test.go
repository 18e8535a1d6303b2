package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-rls/sluice/backend"
	"github.com/sluice-rls/sluice/backend/memstore"
)

func Example() {
	store := memstore.New(memstore.Options{})
	takes := []backend.Take{{
		Key: []byte("shop-a"), Limit: backend.Limit{Requests: 2, Period: time.Hour, Burst: 2}, Hits: 1,
	}}
	decisions := make([]backend.Decision, len(takes))
	for range 3 {
		if err := store.Take(context.Background(), takes, decisions); err != nil {
			fmt.Println(err)
		}
		fmt.Println(decisions[0].OK, decisions[0].Remaining())
	}
	// Output:
	// true 1
	// true 0
	// false 0
}
