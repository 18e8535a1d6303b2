package main

import (
	"io"
	"log/slog"

	"github.com/sluice-rls/sluice/config"
)

// newLogger writes to w what the settings ask for. The level can be changed while it is in
// use.
func newLogger(s config.Settings, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(s.LogLevel)
	o := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), level
	}
	return slog.New(slog.NewTextHandler(w, o)), level
}
