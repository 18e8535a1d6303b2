package redisstore

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed instances.lua
var instancesSource string

var instances = redis.NewScript(instancesSource)

// Beat says that an instance of this name is there, and returns how many there are. It
// counts for so long after its last beat, and the list itself lives no longer.
func (s *Store) Beat(ctx context.Context, name string, life time.Duration) (int, error) {
	return s.beat(ctx, name, life.Microseconds())
}

// Leave says that an instance is there no more.
func (s *Store) Leave(ctx context.Context, name string) error {
	_, err := s.beat(ctx, name, 0)
	return err
}

func (s *Store) beat(ctx context.Context, name string, life int64) (int, error) {
	n, err := instances.Run(ctx, s.client, []string{s.other("instances")}, name, life).Int()
	if err != nil {
		return 0, wrap("counting instances", err)
	}
	return n, nil
}
