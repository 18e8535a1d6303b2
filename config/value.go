package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// A value is the kind of a setting and the place that its text goes to.
type value struct {
	// kind says what is allowed, for errors and docs: "a whole number from 1 to 9".
	kind string
	// set parses text and stores it. Its error continues a sentence that begins with
	// the text: "is not ...", "has no unit".
	set func(text string) error
	// boolean allows the flag without a value.
	boolean bool
}

// not is the error of a text that is not of its kind.
func not(kind string) error { return errors.New("is not " + kind) }

// text takes anything without control characters: what carries one (the newline at the
// end of a mounted secret) would fail later and with less to see.
func text[T ~string](dst *T) value {
	return value{kind: "text", set: func(text string) error {
		if strings.ContainsFunc(text, control) {
			return errors.New("holds a control character, such as a newline at its end")
		}
		*dst = T(text)
		return nil
	}}
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

// boolean takes what strconv.ParseBool takes.
func boolean(dst *bool) value {
	const kind = "true or false"
	return value{kind: kind, boolean: true, set: func(text string) error {
		b, err := strconv.ParseBool(strings.TrimSpace(text))
		if err != nil {
			return not(kind)
		}
		*dst = b
		return nil
	}}
}

// integer takes a decimal number within bounds.
func integer(dst *int, low, high int) value {
	kind := fmt.Sprintf("a whole number from %d to %d", low, high)
	return value{kind: kind, set: func(text string) error {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < low || n > high {
			return not(kind)
		}
		*dst = n
		return nil
	}}
}

// port takes a TCP port, or 0 for one that is free.
func port(dst *int) value {
	v := integer(dst, 0, 65535)
	set := v.set
	v.set = func(text string) error {
		err := set(text)
		if err != nil && strings.Contains(text, "://") {
			return fmt.Errorf("%w: Kubernetes sets it so for a service of that name (enableServiceLinks)", err)
		}
		return err
	}
	return v
}

// share takes a number from 0 to 1.
func share(dst *float64) value { return between(dst, 0, 1) }

// between takes a number of a range.
func between(dst *float64, low, high float64) value {
	kind := fmt.Sprintf("a number from %v to %v", low, high)
	return value{kind: kind, set: func(text string) error {
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(f >= low && f <= high) { // the comparison also refuses NaN
			return not(kind)
		}
		*dst = f
		return nil
	}}
}

// duration takes a Go duration of at least low.
func duration(dst *time.Duration, low time.Duration) value {
	kind := "a duration of at least " + low.String()
	return value{kind: kind, set: func(text string) error {
		text = strings.TrimSpace(text)
		d, err := time.ParseDuration(text)
		if err != nil {
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				return fmt.Errorf("has no unit: write %ss or %sms", text, text)
			}
			return fmt.Errorf("is not %s, such as 5ms, 10s or 24h", kind)
		}
		if d < low {
			return fmt.Errorf("is below %s", low)
		}
		*dst = d
		return nil
	}}
}

// choice takes one of several words in any letter case and stores it as spelled here.
func choice(dst *string, words ...string) value {
	kind := alternatives(words)
	return value{kind: kind, set: func(text string) error {
		text = strings.TrimSpace(text)
		for _, word := range words {
			if strings.EqualFold(text, word) {
				*dst = word
				return nil
			}
		}
		return not(kind)
	}}
}

// switched takes one of two words.
func switched(dst *bool, on, off string) value {
	var word string
	v := choice(&word, on, off)
	set := v.set
	v.set = func(text string) error {
		err := set(text)
		*dst = err == nil && word == on
		return err
	}
	return v
}

// except is v with an error of its own for one word that users of the reference know.
func except(v value, word, why string) value {
	set := v.set
	v.set = func(text string) error {
		if strings.EqualFold(strings.TrimSpace(text), word) {
			return errors.New(why)
		}
		return set(text)
	}
	return v
}

// alternatives joins words as a sentence does: "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// levels are the names of the log levels, those of the reference's logger included.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warn", slog.LevelWarn},
	{"warning", slog.LevelWarn},
	{"error", slog.LevelError},
	{"trace", slog.LevelDebug},
	{"fatal", slog.LevelError},
	{"panic", slog.LevelError},
}

// level takes the name of a log level in any letter case.
func level(dst *slog.Level) value {
	const kind = "debug, info, warn or error"
	return value{kind: kind, set: func(text string) error {
		for _, l := range levels {
			if strings.EqualFold(strings.TrimSpace(text), l.name) {
				*dst = l.level
				return nil
			}
		}
		return not(kind)
	}}
}

// host takes a name or an IP address to listen on.
func host(dst *string) value {
	const kind = "a host name or an IP address"
	return value{kind: kind, set: func(text string) error {
		text = strings.TrimSpace(text)
		bare := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
		if zoneless, _, _ := strings.Cut(bare, "%"); net.ParseIP(zoneless) != nil {
			*dst = bare
			return nil
		}
		if _, _, err := net.SplitHostPort(text); err == nil {
			return fmt.Errorf("is not %s: the port is a setting of its own", kind)
		}
		if strings.ContainsAny(text, ":/[] ") || strings.ContainsFunc(text, control) {
			return not(kind)
		}
		*dst = text
		return nil
	}}
}

// address takes host:port; the host may be missing.
func address(dst *string) value {
	const kind = "host:port or :port"
	return value{kind: kind, set: func(text string) error {
		text = strings.TrimSpace(text)
		_, p, err := net.SplitHostPort(text)
		if err != nil || !isPort(p) {
			return not(kind)
		}
		*dst = text
		return nil
	}}
}

// isPort reports whether text is a decimal port, 0 to 65535.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// urlPath takes the path of a page.
func urlPath(dst *string) value {
	const kind = "a path that begins with /"
	return value{kind: kind, set: func(text string) error {
		text = strings.TrimSpace(text)
		if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?# {}") || strings.ContainsFunc(text, control) {
			return not(kind)
		}
		*dst = text
		return nil
	}}
}

// prefix takes the start of a key. Braces would move the part of a key that picks the
// cluster's slot, and with it all buckets to one node.
func prefix(dst *string) value {
	v := text(dst)
	set := v.set
	v.kind = "text without { and }"
	v.set = func(text string) error {
		if strings.ContainsAny(text, "{}") {
			return not(v.kind)
		}
		return set(text)
	}
	return v
}
