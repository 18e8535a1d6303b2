package config

import "log/slog"

// masked stands for a secret wherever one would be printed.
const masked = "***"

// Secret is text that is never printed: every way of formatting, logging or encoding it
// gives three stars, and nothing if it is empty. Convert it to a string to use it.
type Secret string

// String gives three stars, or nothing if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString masks the secret under the verb %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// LogValue masks the secret in a log.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText masks the secret in JSON and whatever else encodes text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
