package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed instances.lua
var instancesSource string

var instances = redis.NewScript(instancesSource)

// Beat says that an instance of this name is there, and returns how many there are and how
// many of them have a name before this one. It counts for so long after its last beat, and
// the list itself lives no longer.
func (s *Store) Beat(ctx context.Context, name string, life time.Duration) (instances, rank int, err error) {
	return s.beat(ctx, name, life.Microseconds())
}

// Leave says that an instance is there no more.
func (s *Store) Leave(ctx context.Context, name string) error {
	_, _, err := s.beat(ctx, name, 0)
	return err
}

func (s *Store) beat(ctx context.Context, name string, life int64) (n, rank int, err error) {
	reply, err := instances.Run(ctx, s.client, []string{s.other("instances")}, name, life).Int64Slice()
	if err == nil && len(reply) != 2 {
		err = fmt.Errorf("a reply of %d numbers, want 2", len(reply))
	}
	if err != nil {
		return 0, 0, wrap("counting instances", err)
	}
	return int(reply[0]), int(reply[1]), nil
}
