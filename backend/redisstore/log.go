package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo sends what the client library says of its connections to a logger, at level
// Debug: each call that it matters to has an error of its own. Without it the library
// writes to standard error. It is for the whole process; call it before New.
//
// The text may hold addresses; it never holds a password.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

// clientLog is the logger that go-redis asks for.
type clientLog struct{ logger *slog.Logger }

// Printf is called by go-redis.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.logger.Enabled(ctx, slog.LevelDebug) {
		l.logger.LogAttrs(ctx, slog.LevelDebug, "redis client", slog.String("text", fmt.Sprintf(format, v...)))
	}
}
