package main

import (
	"io"
	"log/slog"

	"github.com/sluice-rls/sluice/config"
)

// newLogger writes to w what the settings ask for.
func newLogger(s config.Settings, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
